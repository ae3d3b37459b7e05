// SPDX-License-Identifier: MIT

package core

import (
	"net"

	"mori/core/fabric"
)

// ListenAddr returns the address to listen at for data: networks use the host of the control plane,
// others choose their own address.
func ListenAddr(name, host string) fabric.Addr {
	if t, ok := registered(name); !ok || t.Scope != fabric.ScopeNetwork {
		return ""
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return fabric.Addr(net.JoinHostPort(host, "0"))
}

// DialAddr replaces an unspecified host ("0.0.0.0") in a peer's address by the host of its control
// plane.
func DialAddr(addr fabric.Addr, control string) fabric.Addr {
	host, port, err := net.SplitHostPort(string(addr))
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if h, _, err := net.SplitHostPort(control); err == nil {
			return fabric.Addr(net.JoinHostPort(h, port))
		}
	}
	return addr
}
