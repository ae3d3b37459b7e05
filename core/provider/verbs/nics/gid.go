// SPDX-License-Identifier: MIT

package nics

import (
	"fmt"
	"net/netip"

	"mori/core/fabric"
	"mori/native/verbs"
)

// ChooseGID selects the entry of a port's table that peers send to: the wanted index, or, if that
// is negative, the first of the best kind. RoCE v2 is better than v1, because it is routed. IPv4 is
// better than global IPv6, and that is better than link-local IPv6, which ends at the next router.
func ChooseGID(table []verbs.GIDEntry, want int) (verbs.GIDEntry, error) {
	if want >= 0 {
		for _, g := range table {
			if g.Index == want {
				return g, nil
			}
		}
		return verbs.GIDEntry{}, fmt.Errorf("GID index %d is not in the port's table (%s): %w", want, listGIDs(table), fabric.ErrInvalid)
	}
	best, rank := -1, 0
	for i, g := range table {
		if r := rankGID(g); best < 0 || r > rank {
			best, rank = i, r
		}
	}
	if best < 0 {
		return verbs.GIDEntry{}, fmt.Errorf("the port has no GID: does its network interface have an address?: %w", fabric.ErrNoData)
	}
	return table[best], nil
}

// ChooseGIDLike is ChooseGID among the entries of the peer's address family, if there are any and
// want is negative.
func ChooseGIDLike(table []verbs.GIDEntry, want int, peer *[16]byte) (verbs.GIDEntry, error) {
	if peer != nil && want < 0 {
		is4 := func(gid [16]byte) bool { return netip.AddrFrom16(gid).Is4In6() }
		var like []verbs.GIDEntry
		for _, g := range table {
			if is4(g.GID) == is4(*peer) {
				like = append(like, g)
			}
		}
		if len(like) > 0 {
			table = like
		}
	}
	return ChooseGID(table, want)
}

func rankGID(g verbs.GIDEntry) int {
	rank := 0
	if g.Type == verbs.GIDRoCEv2 {
		rank = 3
	}
	addr := netip.AddrFrom16(g.GID)
	switch {
	case addr.Is4In6():
		rank += 2
	case !addr.IsLinkLocalUnicast():
		rank++
	}
	return rank
}

func listGIDs(table []verbs.GIDEntry) string {
	if len(table) == 0 {
		return "which is empty"
	}
	text := "which has "
	for i, g := range table {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d: %s", g.Index, g.Type)
	}
	return text
}

// GIDText formats a GID as an IP address.
func GIDText(gid [16]byte) string { return netip.AddrFrom16(gid).Unmap().String() }
