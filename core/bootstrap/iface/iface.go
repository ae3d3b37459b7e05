// SPDX-License-Identifier: MIT

// Package iface finds the address of this host at which other ranks reach it.
package iface

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"mori/core/config"
)

// An Interface is a network interface of this host with its usable addresses.
type Interface struct {
	name         string
	up, loopback bool
	Addrs        []netip.Addr
}

// HostAddr is the address by which processes of other hosts reach this one: of the interface that
// MORI_SOCKET_IFNAME names, else of the first one that is up and not loopback, else loopback.
func HostAddr() (netip.Addr, error) {
	nics, err := All()
	if err != nil {
		return netip.Addr{}, err
	}
	return choose(nics, config.Get(config.SocketIfname))
}

// All returns the network interfaces of this host.
func All() ([]Interface, error) {
	found, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	nics := make([]Interface, 0, len(found))
	for _, f := range found {
		n := Interface{name: f.Name, up: f.Flags&net.FlagUp != 0, loopback: f.Flags&net.FlagLoopback != 0}
		addrs, err := f.Addrs()
		if err != nil {
			continue // it went away while we looked
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				n.Addrs = append(n.Addrs, p.Addr().Unmap())
			}
		}
		nics = append(nics, n)
	}
	return nics, nil
}

// choose takes wanted as a comma list of names or prefixes of names, of which the first that fits
// anything wins.
func choose(nics []Interface, wanted string) (netip.Addr, error) {
	if strings.TrimSpace(wanted) == "" {
		for _, n := range nics {
			if a, ok := n.addr(); ok && !n.loopback {
				return a, nil
			}
		}
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	for name := range strings.SplitSeq(wanted, ",") {
		if a, ok := named(nics, strings.TrimSpace(name)); ok {
			return a, nil
		}
	}
	var have []string
	for _, n := range nics {
		if _, ok := n.addr(); ok {
			have = append(have, n.name)
		}
	}
	return netip.Addr{}, fmt.Errorf("%s=%q matches no interface that is up and has an address; this host has %s", config.SocketIfname, wanted, strings.Join(have, ", "))
}

// named prefers the interface of exactly that name to those whose names only start with it.
func named(nics []Interface, name string) (netip.Addr, bool) {
	if name == "" {
		return netip.Addr{}, false
	}
	for _, exact := range []bool{true, false} {
		for _, n := range nics {
			if n.name == name || !exact && strings.HasPrefix(n.name, name) {
				if a, ok := n.addr(); ok {
					return a, true
				}
			}
		}
	}
	return netip.Addr{}, false
}

// addr prefers IPv4. Link-local addresses are of no use: they need a zone, which is another on each
// host.
func (n Interface) addr() (found netip.Addr, ok bool) {
	for _, a := range n.Addrs {
		if !n.up || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
			continue
		}
		if a.Is4() {
			return a, true
		}
		if !ok {
			found, ok = a, true
		}
	}
	return found, ok
}
