// SPDX-License-Identifier: MIT

package placement

import (
	"strings"
	"testing"

	"mori/shmem/internal/peers"
)

// PEs of one host that cannot hand each other memory, as in two containers, are as far apart as
// those of two hosts.
func TestContainersOfOneHostAreApart(t *testing.T) {
	here, there := room(), "net:[1], user 1"
	m := &Map{pes: &peers.Group{N: 3, Me: 1}, PEs: []PE{{Node: "a", Room: here}, {Node: "a", Room: here}, {Node: "a", Room: there}}}
	any, far := m.Apart()
	if !any || !far || !m.Maps(0) || !m.Maps(1) || m.Maps(2) {
		t.Errorf("any %v, far %v; maps %v, %v, %v", any, far, m.Maps(0), m.Maps(1), m.Maps(2))
	}
	if _, why := m.Path(2); !strings.Contains(why, there) {
		t.Errorf("the reason is %q", why)
	}
	m.PEs = m.PEs[:2]
	if any, far := m.Apart(); any || far {
		t.Errorf("without it any %v, far %v", any, far)
	}
}
