// SPDX-License-Identifier: MIT

package remote

import (
	"slices"
	"strings"
	"testing"
)

// The PEs take what all of them have, and each says why it is not something better.
func TestTransportsThatAllHave(t *testing.T) {
	const none = "no device"
	nic, wire, near := transport{Name: "verbs"}, transport{Name: "tcp"}, transport{"shm", "another host"}
	noNIC := transport{"verbs", none}
	for _, c := range []struct {
		name    string
		offered []offers
		me      int
		all     string
		why     []string
	}{
		{"all have NICs", []offers{{near, nic, wire}, {near, nic, wire}}, 0, "verbs tcp", []string{"shm: another host"}},
		{"nobody has one", []offers{{near, noNIC, wire}, {near, noNIC, wire}}, 1, "tcp", []string{"shm: another host", "verbs: no device"}},
		{"one has none, as seen by another", []offers{{nic, wire}, {noNIC, wire}, {nic, wire}}, 0, "tcp", []string{"verbs: no device (not on PE 1)"}},
		{"one has none, as seen by itself", []offers{{nic, wire}, {nic, wire}, {{"verbs", "its port is down"}, wire}, {noNIC, wire}}, 3, "tcp",
			[]string{"verbs: no device (not on PEs 2, 3)"}},
		{"PE 0 has none", []offers{{noNIC, wire}, {nic, wire}}, 1, "tcp", []string{"verbs: no device (not on PE 0)"}},
		{"left out on one", []offers{{wire}, {nic, wire}}, 1, "tcp", []string{"verbs: FABRIC_PROVIDER excludes it there, or its build lacks it (not on PE 0)"}},
		{"another order on another build", []offers{{nic, wire}, {wire, nic}}, 1, "verbs tcp", nil},
		{"nothing in common", []offers{{nic}, {wire}}, 0, "", []string{
			"verbs: FABRIC_PROVIDER excludes it there, or its build lacks it (not on PE 1)", "tcp: FABRIC_PROVIDER excludes it there, or its build lacks it (not on PE 0)"}},
		{"nothing", []offers{{}, {}}, 0, "", nil},
	} {
		all, why := common(c.offered, c.me)
		if strings.Join(all, " ") != c.all || !slices.Equal(why, c.why) {
			t.Errorf("%s: %q, %q; want %q, %q", c.name, all, why, c.all, c.why)
		}
	}
}

func TestRegions(t *testing.T) {
	r := &Regions{ends: []uint64{100, 300, 301}, theirs: [][]region{nil, {{key: 7, base: 1000}, {key: 8, base: 5000}, {key: 9}}}}
	for _, c := range []struct {
		off, left uint64
		region    int
	}{{0, 100, 0}, {99, 1, 0}, {100, 200, 1}, {299, 1, 1}, {300, 1, 2}} {
		if i, left := r.at(c.off); i != c.region || left != c.left {
			t.Errorf("offset %d is in region %d, which has %d bytes from there; want %d, %d", c.off, i, left, c.region, c.left)
		}
	}
	if s := r.remoteSeg(1, 150, 20); s.Key != 8 || s.Addr != 5050 || s.Len != 20 {
		t.Errorf("%+v", s)
	}
}
