// SPDX-License-Identifier: MIT

package bootstrap

import "net/netip"

// HostAddr is the address by which processes of other hosts reach this one: of the interface that MORI_SOCKET_IFNAME names, else of the
// first one that is up and not loopback, else loopback.
func HostAddr() (netip.Addr, error) { return hostAddr() }
