// SPDX-License-Identifier: MIT

package nics

import (
	"errors"
	"fmt"
	"os"

	"mori/core/bootstrap/launcher"
	"mori/core/topology"
	"mori/native/verbs"
)

// Choice is what people set about which NICs are used, with this process's turn among those of
// its host: without it, memory of the host would go by the same NIC in all of them.
func Choice() (topology.Choice, error) {
	choice, err := topology.Configured()
	launch, ok, wrong := launcher.Find()
	if wrong != nil || !ok { // package bootstrap reports a launcher that contradicts itself
		return choice, err
	}
	if choice.Turn = launch.LocalRank; choice.Turn < 0 {
		choice.Turn = launch.Rank
	}
	return choice, err
}

// Host is this host as the library sees its RDMA devices. The error is why the library shows
// none; then it is as the kernel sees them.
func Host() (*topology.Host, error) {
	s := sight{host: topology.Scan(os.DirFS("/")), library: verbs.Load()}
	if s.library == nil {
		s.devices, s.library = lookAtDevices()
	}
	if s.library == nil {
		s.host.Merge(s.reported())
	}
	return s.host, s.library
}

// Missing says why no RDMA device of this host can be used, "" if one can be.
func Missing() string {
	if err := Unusable(Host()); err != nil {
		return fmt.Sprintf("rdma: %v; run mori doctor for details", err)
	}
	return ""
}

// Unusable returns why no RDMA device of a host can be used, nil if one can be. library is why
// there is no libibverbs.
func Unusable(h *topology.Host, library error) error {
	if len(h.RDMA) == 0 {
		return errors.New("no active RDMA device on this host (/sys/class/infiniband is empty)")
	}
	if library != nil {
		return fmt.Errorf("the RDMA devices of this host need libibverbs: %w", library)
	}
	choice, _ := Choice() // what is malformed is logged where devices are opened
	choice.HostNIC = -1   // which memory it will be is not known yet
	_, err := h.NICsFor(topology.OnNode(-1), 1, choice)
	if errors.Is(err, topology.ErrNoNIC) {
		return fmt.Errorf("no active RDMA device on this host: %w", err)
	}
	return err
}
