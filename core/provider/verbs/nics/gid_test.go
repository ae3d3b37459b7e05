// SPDX-License-Identifier: MIT

package nics

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"mori/core/fabric"
	"mori/native/verbs"
)

func gid(index int, addr string, kind verbs.GIDType) verbs.GIDEntry {
	return verbs.GIDEntry{Index: index, GID: netip.MustParseAddr(addr).As16(), Type: kind}
}

func TestTheBestGIDIsChosen(t *testing.T) {
	v1, v2, ib := verbs.GIDRoCEv1, verbs.GIDRoCEv2, verbs.GIDIB
	for name, c := range map[string]struct {
		table []verbs.GIDEntry
		want  int
	}{
		"RoCE as Linux lists it": {[]verbs.GIDEntry{gid(0, "fe80::1", v1), gid(1, "fe80::1", v2), gid(2, "10.0.0.7", v1), gid(3, "10.0.0.7", v2)}, 3},
		"IPv6 only":              {[]verbs.GIDEntry{gid(0, "fe80::1", v2), gid(5, "2001:db8::1", v2)}, 5},
		"link-local only":        {[]verbs.GIDEntry{gid(0, "fe80::1", v1), gid(1, "fe80::1", v2)}, 1},
		"an old NIC":             {[]verbs.GIDEntry{gid(0, "fe80::1", v1), gid(1, "192.168.1.9", v1)}, 1},
		"v2 before any v1":       {[]verbs.GIDEntry{gid(0, "10.0.0.7", v1), gid(1, "fe80::1", v2)}, 1},
		"InfiniBand":             {[]verbs.GIDEntry{gid(0, "fe80::2:c903:1", ib)}, 0},
		"the first of equals":    {[]verbs.GIDEntry{gid(2, "10.0.0.7", v2), gid(3, "10.0.1.7", v2)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ChooseGID(c.table, -1)
			if err != nil || got.Index != c.want {
				t.Errorf("index %d, %v; want %d", got.Index, err, c.want)
			}
			last := c.table[len(c.table)-1].Index
			if got, err := ChooseGID(c.table, last); err != nil || got.Index != last {
				t.Errorf("asked for %d: %d, %v", last, got.Index, err)
			}
		})
	}
}

func TestGIDsThatAreNotThere(t *testing.T) {
	if _, err := ChooseGID(nil, -1); !errors.Is(err, fabric.ErrNoData) {
		t.Errorf("an empty table: %v", err)
	}
	_, err := ChooseGID([]verbs.GIDEntry{gid(1, "10.0.0.7", verbs.GIDRoCEv2)}, 7)
	if !errors.Is(err, fabric.ErrInvalid) || !strings.Contains(err.Error(), "1: RoCE v2") {
		t.Errorf("index 7: %v", err)
	}
}

// One of the peer's kind goes before a better one, as far as there is one and none was asked for.
func TestTheGIDLikeThePeers(t *testing.T) {
	table := []verbs.GIDEntry{gid(0, "fe80::1", verbs.GIDRoCEv2), gid(1, "10.0.0.7", verbs.GIDRoCEv2), gid(2, "2001:db8::1", verbs.GIDRoCEv2)}
	for _, c := range []struct {
		peer       string
		have, want int
		index      int
	}{
		{"10.0.0.8", 3, 1, -1}, {"2001:db8::2", 3, 2, -1}, {"fe80::2", 3, 2, -1}, {"2001:db8::2", 3, 1, 1}, {"10.0.0.8", 1, 0, -1}, {"2001:db8::2", 1, 0, -1},
	} {
		peer := netip.MustParseAddr(c.peer).As16()
		if got, err := ChooseGIDLike(table[:c.have], c.index, &peer); err != nil || got.Index != c.want {
			t.Errorf("of the first %d for %s, asked for %d: %d, %v; want %d", c.have, c.peer, c.index, got.Index, err, c.want)
		}
	}
}
