// SPDX-License-Identifier: MIT

package iface

import (
	"net/netip"
	"strings"
	"testing"
)

func TestInterfaceIsChosen(t *testing.T) {
	addrs := func(all ...string) (out []netip.Addr) {
		for _, a := range all {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	nics := []Interface{
		{"lo", true, true, addrs("127.0.0.1", "::1")},
		{"down0", false, false, addrs("10.0.0.1")},
		{"six0", true, false, addrs("fe80::1", "2001:db8::1")},
		{"eth0", true, false, addrs("2001:db8::2", "10.0.0.2")},
		{"eth01", true, false, addrs("10.0.0.3")},
		{"bare", true, false, addrs("fe80::2")},
	}
	for _, c := range []struct{ wanted, want string }{
		{"", "2001:db8::1"}, {"  ", "2001:db8::1"}, {"eth0", "10.0.0.2"}, {"eth01", "10.0.0.3"}, {"eth", "10.0.0.2"}, {"nope,eth01", "10.0.0.3"},
		{"lo", "127.0.0.1"}, {" eth01 , eth0", "10.0.0.3"}, {"down", ""}, {"bare", ""}, {"nope", ""}, {",", ""},
	} {
		got, err := choose(nics, c.wanted)
		if c.want == "" {
			if err == nil || !strings.Contains(err.Error(), "MORI_SOCKET_IFNAME") || !strings.Contains(err.Error(), "lo, six0, eth0, eth01") {
				t.Errorf("%q: %v, %v; want an error with the choices", c.wanted, got, err)
			}
		} else if err != nil || got.String() != c.want {
			t.Errorf("%q: %v, %v; want %s", c.wanted, got, err, c.want)
		}
	}
	if got, err := choose(nics[:2], ""); err != nil || got.String() != "127.0.0.1" {
		t.Errorf("without a network: %v, %v", got, err)
	}
}
