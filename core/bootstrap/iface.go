// SPDX-License-Identifier: MIT

package bootstrap

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"mori/core/config"
)

// A nic is a network interface of this host with its usable addresses.
type nic struct {
	name         string
	up, loopback bool
	addrs        []netip.Addr
}

// HostAddr is the address by which processes of other hosts reach this one: of the interface that
// MORI_SOCKET_IFNAME names, else of the first one that is up and not loopback, else loopback.
func HostAddr() (netip.Addr, error) {
	nics, err := hostNICs()
	if err != nil {
		return netip.Addr{}, err
	}
	return chooseAddr(nics, config.Get(config.SocketIfname))
}

func hostNICs() ([]nic, error) {
	found, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	nics := make([]nic, 0, len(found))
	for _, f := range found {
		n := nic{name: f.Name, up: f.Flags&net.FlagUp != 0, loopback: f.Flags&net.FlagLoopback != 0}
		addrs, err := f.Addrs()
		if err != nil {
			continue // it went away while we looked
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				n.addrs = append(n.addrs, p.Addr().Unmap())
			}
		}
		nics = append(nics, n)
	}
	return nics, nil
}

// chooseAddr takes wanted as a comma list of names or prefixes of names, of which the first that
// fits anything wins.
func chooseAddr(nics []nic, wanted string) (netip.Addr, error) {
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
	return netip.Addr{}, fmt.Errorf("%s=%q fits no interface that is up and has an address; there are %s", config.SocketIfname, wanted, strings.Join(have, ", "))
}

// named prefers the interface of exactly that name to those whose names only start with it.
func named(nics []nic, name string) (netip.Addr, bool) {
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
func (n nic) addr() (found netip.Addr, ok bool) {
	for _, a := range n.addrs {
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
