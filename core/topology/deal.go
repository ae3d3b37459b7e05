// SPDX-License-Identifier: MIT

package topology

import "slices"

// deal assigns each GPU of the host, in the order of h.GPUs, the position of its NIC in rails: one
// of its nearest. No NIC serves two GPUs more than another one that is as near to one of them.
//
// GPUs take the least used of their nearest NICs in turn. That alone can fail if GPUs have
// different nearest NICs: an early GPU takes the only NIC of a later one. So chains of GPUs then
// move on by one, each to another of its nearest NICs, while the chain's last NIC has at least two
// GPUs less than its first. Every chain makes the loads more even, so this ends.
func (h *Host) deal(rails []Rail) []int {
	d := dealing{near: make([][]int, len(h.GPUs)), dealt: make([]int, len(h.GPUs)), load: make([]int, len(rails))}
	for g := range h.GPUs {
		d.near[g] = h.nearestTo(g, rails)
		best := d.near[g][0]
		for _, r := range d.near[g] {
			if d.load[r] < d.load[best] {
				best = r
			}
		}
		d.dealt[g] = best
		d.load[best]++
	}
	for d.improve() {
	}
	return d.dealt
}

// nearestTo lists the positions of the rails that are nearest to a GPU.
func (h *Host) nearestTo(g int, rails []Rail) []int {
	var these []int
	least := Unknown
	for i, r := range rails {
		switch d := h.between(h.GPUs[g].spot(), r.spot()); {
		case d < least:
			least, these = d, []int{i}
		case d == least:
			these = append(these, i)
		}
	}
	return these
}

type dealing struct {
	near  [][]int // by GPU: the rails that it may have
	dealt []int   // by GPU: the rail that it has
	load  []int   // by rail: how many GPUs have it
}

// improve finds one chain and moves it.
func (d *dealing) improve() bool {
	for from := range d.load {
		if d.load[from] > 1 && d.move(from) {
			return true
		}
	}
	return false
}

// move searches, breadth first, for a rail with a load lower by two or more, to which GPUs can be
// passed on from rail to rail.
func (d *dealing) move(from int) bool {
	by := make(map[int]int) // the GPU through which a rail was reached
	seen := []int{from}
	for i := 0; i < len(seen); i++ {
		for g, at := range d.dealt {
			if at != seen[i] {
				continue
			}
			for _, r := range d.near[g] {
				if slices.Contains(seen, r) {
					continue
				}
				by[r] = g
				seen = append(seen, r)
				if d.load[r]+1 < d.load[from] {
					d.pass(from, r, by)
					return true
				}
			}
		}
	}
	return false
}

// pass moves the GPUs of the chain that ends at rail to.
func (d *dealing) pass(from, to int, by map[int]int) {
	d.load[from]--
	d.load[to]++
	for to != from {
		g := by[to]
		before := d.dealt[g]
		d.dealt[g] = to
		to = before
	}
}
