// SPDX-License-Identifier: MIT

package nics

import (
	"io/fs"
	"slices"

	"mori/core/config"
	"mori/core/topology"
	"mori/native/verbs"
)

// A seenDevice is the library's report on a device.
type seenDevice struct {
	name  string
	err   error // why it cannot be opened
	attr  verbs.DeviceAttr
	node  verbs.NodeType
	ports []seenPort
}

type seenPort struct {
	number int
	attr   verbs.PortAttr
	gids   []verbs.GIDEntry
	taken  verbs.GIDEntry
	noGID  error // why no GID is chosen
}

// unreachable returns why a port that is up has no address for peers. InfiniBand needs no GID,
// unless the port has some and none was chosen.
func (p *seenPort) unreachable() error {
	if p.attr.State == verbs.PortActive && (p.attr.LinkLayer == verbs.LinkEthernet || len(p.gids) > 0) {
		return p.noGID
	}
	return nil
}

// sight is all the data for the report.
type sight struct {
	host    *topology.Host
	root    fs.FS
	library error // why it is not available
	devices []seenDevice
	access  func(path string) error // whether a file may be read and written
	locked  memlock
}

func lookAtDevices() ([]seenDevice, error) {
	known, err := verbs.Devices()
	if err != nil {
		return nil, err
	}
	want, _ := config.Int(config.IBGIDIndex, -1, 0, 1<<16) // report reports malformed values
	seen := make([]seenDevice, len(known))
	for i, d := range known {
		seen[i] = lookAt(d, want)
	}
	return seen, nil
}

func lookAt(d verbs.Device, gid int) (seen seenDevice) {
	seen.name, seen.node = d.Name, d.Node
	defer func() {
		if seen.err != nil {
			seen.ports = nil
		}
	}()
	ctx, err := verbs.Open(d.Name)
	if err != nil {
		seen.err = err
		return seen
	}
	defer func() { _ = ctx.Close() }()
	if seen.attr, seen.err = ctx.Query(); seen.err != nil {
		return seen
	}
	for n := 1; n <= seen.attr.Ports; n++ {
		p := seenPort{number: n}
		if p.attr, seen.err = ctx.Port(n); seen.err != nil {
			return seen
		}
		if p.gids, p.noGID = ctx.GIDs(n); p.noGID == nil {
			p.taken, p.noGID = ChooseGID(p.gids, gid)
		}
		seen.ports = append(seen.ports, p)
	}
	return seen
}

// reported returns the library's report on the ports. For devices that it cannot open or does not
// know, it returns what sysfs reports.
func (s *sight) reported() []topology.RDMA {
	var told []topology.RDMA
	for _, d := range s.devices {
		for _, p := range d.ports {
			one := topology.RDMA{
				Device: d.name, Port: p.number, State: stateWord(p.attr.State), Link: p.attr.LinkLayer.String(), Gbps: p.attr.Speed,
				NetDev: p.taken.NetDev, Node: d.node.String(),
			}
			if err := p.unreachable(); err != nil {
				one.Fault = err.Error()
			}
			told = append(told, one)
		}
		inKernel := func(p topology.RDMA) bool { return p.Device == d.name }
		if d.err != nil && !slices.ContainsFunc(s.host.RDMA, inKernel) {
			told = append(told, topology.RDMA{Device: d.name, Port: 1, Node: d.node.String(), Fault: d.err.Error()})
		}
	}
	for _, p := range s.host.RDMA {
		at := slices.IndexFunc(s.devices, func(d seenDevice) bool { return d.name == p.Device })
		switch {
		case at < 0:
			p.Fault = "libibverbs does not list it"
		case s.devices[at].err != nil:
			p.Fault = s.devices[at].err.Error()
		default:
			continue
		}
		told = append(told, p)
	}
	return told
}

// stateWord returns a state as sysfs writes it.
func stateWord(s verbs.PortState) string {
	words := map[verbs.PortState]string{
		verbs.PortDown: "DOWN", verbs.PortInit: "INIT", verbs.PortArmed: "ARMED", verbs.PortActive: "ACTIVE", verbs.PortActiveDefer: "ACTIVE_DEFER",
	}
	if word, ok := words[s]; ok {
		return word
	}
	return "NOP"
}
