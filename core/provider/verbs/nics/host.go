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

// Choice returns the user's settings for NICs, with this process's number among those of its host.
// Without that number, all of them would use the same NIC for host memory.
func Choice() (topology.Choice, error) {
	choice, err := topology.Configured()
	launch, ok, wrong := launcher.Find()
	if wrong != nil || !ok { // package bootstrap reports contradictory launchers
		return choice, err
	}
	if choice.Turn = launch.LocalRank; choice.Turn < 0 {
		choice.Turn = launch.Rank
	}
	return choice, err
}

// Host returns this host with the RDMA devices that libibverbs reports. If it reports none, the
// error says why, and the devices are those that the kernel reports.
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

// Missing returns why no RDMA device of this host is usable, or "" if one is.
func Missing() string {
	if err := Unusable(Host()); err != nil {
		return fmt.Sprintf("rdma: %v; run mori doctor for details", err)
	}
	return ""
}

// Unusable returns why no RDMA device of a host is usable, or nil if one is. library says why
// libibverbs is not available.
func Unusable(h *topology.Host, library error) error {
	if len(h.RDMA) == 0 {
		return errors.New("no active RDMA device on this host (/sys/class/infiniband is empty)")
	}
	if library != nil {
		return fmt.Errorf("the RDMA devices of this host need libibverbs: %w", library)
	}
	choice, _ := Choice() // malformed settings are logged where devices are opened
	choice.HostNIC = -1   // the memory is not known yet
	_, err := h.NICsFor(topology.OnNode(-1), 1, choice)
	if errors.Is(err, topology.ErrNoNIC) {
		return fmt.Errorf("no active RDMA device on this host: %w", err)
	}
	return err
}
