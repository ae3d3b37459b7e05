// SPDX-License-Identifier: MIT

package topology

import (
	"cmp"
	"fmt"
	"slices"

	"mori/core/config"
)

// A Place is where memory is: on a GPU, or on a NUMA node of the host. Use AtGPU or OnNode.
type Place struct {
	GPU  string // PCI address, "" for host memory
	NUMA int    // -1 = unknown
}

// AtGPU is the place of the memory of the GPU with a PCI address.
func AtGPU(bus string) Place { return Place{GPU: BusID(bus), NUMA: -1} }

// OnNode is the place of host memory; -1 if the node is unknown. core/memory finds the node of an
// address.
func OnNode(node int) Place { return Place{NUMA: node} }

// A Pick is a NIC chosen for some memory.
type Pick struct {
	Rail
	Distance Distance `json:"distance"`
	Why      string   `json:"why"`
}

// NICsFor chooses up to n NICs for transfers to and from memory at a place, the best first, each
// with its reason. It returns fewer if the host has fewer, and an error that wraps ErrNoNIC if it
// has none.
func (h *Host) NICsFor(near Place, want int, o Choice) ([]Pick, error) {
	if want < 1 {
		return nil, fmt.Errorf("pick %d NICs: want 1 or more", want)
	}
	rails, unused, err := h.Rails(o)
	if err != nil {
		return nil, err
	}
	if near.GPU == "" && o.HostNIC >= 0 {
		return pinned(rails, unused, o)
	}
	if len(rails) == 0 {
		return nil, noRails(unused)
	}
	want = min(want, len(rails))
	if o.Static {
		return h.inOrder(rails, near, want, o.Turn), nil
	}
	return h.byDistance(rails, near, want, o.Turn), nil
}

// pinned returns the NIC that the settings name for host memory.
func pinned(rails []Rail, unused []Unused, o Choice) ([]Pick, error) {
	at := slices.IndexFunc(rails, func(r Rail) bool { return r.Index == o.HostNIC })
	if at >= 0 {
		return []Pick{{rails[at], Unknown, fmt.Sprintf("%s=%d", config.IORDMANICIdx, o.HostNIC)}}, nil
	}
	if len(rails) == 0 {
		return nil, noRails(unused)
	}
	var there []RDMA
	for _, r := range rails {
		there = append(there, r.RDMA)
	}
	return nil, fmt.Errorf("%s=%d is not a usable NIC; usable are %s, with indices from %d to %d: %w",
		config.IORDMANICIdx, o.HostNIC, namesOf(there), rails[0].Index, rails[len(rails)-1].Index, ErrUnknown)
}

// inOrder gives the n-th GPU the n-th NIC and the following ones.
func (h *Host) inOrder(rails []Rail, near Place, want, turn int) []Pick {
	first := turn
	if at := h.gpuIndex(near.GPU); at >= 0 {
		first = at
	}
	var picks []Pick
	for i := range want {
		r := rails[modulo(first+i, len(rails))]
		picks = append(picks, Pick{r, h.distance(near, r.RDMA), config.DisableTopo + " is set: by order"})
	}
	return picks
}

// byDistance puts the nearest NICs first. Among equally near ones, the NIC assigned to this GPU
// comes first, followed by the others in a circle, so that second NICs are shared like first ones.
func (h *Host) byDistance(rails []Rail, near Place, want, turn int) []Pick {
	first := turn
	gpu := h.gpuIndex(near.GPU)
	served := 0
	if gpu >= 0 {
		dealt := h.deal(rails)
		first = dealt[gpu]
		for _, d := range dealt {
			if d == first {
				served++
			}
		}
	}
	picks := make([]Pick, len(rails))
	for i := range rails {
		r := rails[modulo(first+i, len(rails))]
		picks[i] = Pick{Rail: r, Distance: h.distance(near, r.RDMA)}
	}
	slices.SortStableFunc(picks, func(a, b Pick) int { return cmp.Compare(a.Distance, b.Distance) })
	if gpu < 0 { // the circle restarts among the nearest; otherwise turns would fall on the same NIC after a gap
		near := nearest(picks)
		slices.SortStableFunc(picks[:near], func(a, b Pick) int { return a.Index - b.Index })
		rotate(picks[:near], modulo(turn, near))
	}
	picks = picks[:want]
	for i := range picks {
		picks[i].Why = h.why(near, gpu, picks[i])
	}
	if served > 1 {
		picks[0].Why += fmt.Sprintf(", shared by %d GPUs", served)
	}
	return picks
}

// nearest counts the picks that are as near as the first.
func nearest(picks []Pick) int {
	n := slices.IndexFunc(picks, func(p Pick) bool { return p.Distance != picks[0].Distance })
	if n < 0 {
		return len(picks)
	}
	return n
}

func rotate(picks []Pick, by int) {
	copy(picks, append(slices.Clone(picks[by:]), picks[:by]...))
}

// modulo is never negative.
func modulo(a, n int) int { return (a%n + n) % n }

func (h *Host) distance(near Place, nic RDMA) Distance {
	if near.GPU != "" {
		return h.gpuDistance(near.GPU, nic)
	}
	return h.nodes(spot{numa: near.NUMA}, nic.spot())
}

// why describes a distance for the place.
func (h *Host) why(near Place, gpu int, p Pick) string {
	switch {
	case near.GPU != "" && gpu < 0:
		return "this host does not report where GPU " + near.GPU + " is"
	case p.Distance == Unknown:
		return "this host does not report the distance"
	case near.GPU == "" && len(h.NUMA) == 1:
		return "this host has one NUMA node"
	case near.GPU == "" && p.Distance == NODE:
		return fmt.Sprintf("on the memory's NUMA node %d", p.NUMA)
	case near.GPU == "":
		return fmt.Sprintf("on NUMA node %d, the memory is on %d", p.NUMA, near.NUMA)
	}
	return fmt.Sprintf("%s from GPU %s: %s", p.Distance, near.GPU, p.Distance.words())
}

// words describes what lies between two devices at this distance.
func (d Distance) words() string {
	switch d {
	case PIX:
		return "at most one PCIe switch between them"
	case PXB:
		return "several PCIe switches between them"
	case PHB:
		return "through the CPU"
	case NODE:
		return "through host bridges of one NUMA node"
	case SYS:
		return "through the link between NUMA nodes"
	}
	return "not known"
}
