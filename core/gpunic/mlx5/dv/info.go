// SPDX-License-Identifier: MIT

package dv

import (
	"errors"
	"fmt"
	"net"

	"mori/core/gpunic/mlx5"
	"mori/native/verbs"
)

// Info implements mlx5.Cmd. What DevX does not report comes from libibverbs and from sysfs.
func (n *NIC) Info() (info mlx5.Info, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return info, n.gone()
	}
	info.Name = n.name
	if info.EQN, err = n.ctx.EQN(); err != nil {
		return info, err
	}
	c, err := verbs.Open(n.name)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	p, err := c.Port(1) // queues use the first port: ConnectX NICs have one device for each
	if err != nil {
		return info, err
	}
	port := mlx5.Port{Active: p.State == verbs.PortActive, Ethernet: p.LinkLayer == verbs.LinkEthernet, LID: p.LID, MTU: p.MTU}
	if port.Ethernet {
		if err := address(c, n.name, &port); err != nil {
			return info, err
		}
	}
	info.Ports = []mlx5.Port{port}
	return info, nil
}

// address finds the GID that RoCE v2 uses for routing, and the MAC of its interface. It prefers a
// GID with an IPv4 address.
func address(c verbs.Context, name string, port *mlx5.Port) error {
	gids, err := c.GIDs(1)
	if err != nil {
		return err
	}
	best := -1
	for i, g := range gids {
		if g.Type == verbs.GIDRoCEv2 && (best < 0 || net.IP(g.GID[:]).To4() != nil) {
			best = i
		}
	}
	if best < 0 {
		return fmt.Errorf("%s: port 1 has no RoCE v2 address: %w", name, errors.ErrUnsupported)
	}
	port.GID, port.GIDIndex = mlx5.GID(gids[best].GID), gids[best].Index
	i, err := net.InterfaceByName(gids[best].NetDev)
	if err != nil {
		return fmt.Errorf("interface %q of %s: %w", gids[best].NetDev, name, err)
	}
	copy(port.MAC[:], i.HardwareAddr)
	return nil
}
