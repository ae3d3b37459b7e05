// SPDX-License-Identifier: MIT

package topology

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"mori/core/topology/topologytest"
)

// TestDealOnAnyHost: on hosts of all shapes each GPU gets a usable NIC, one of its nearest; no NIC
// has two more GPUs than one which is as near to any of them; and the answer is the same each time.
func TestDealOnAnyHost(t *testing.T) {
	for _, name := range topologytest.Names(t) {
		checkDeal(t, name, hostOf(t, name))
	}
	for seed := range uint64(300) {
		checkDeal(t, fmt.Sprintf("seed %d", seed), randomHost(rand.New(rand.NewPCG(seed, 8))))
	}
}

func checkDeal(t *testing.T, what string, h *Host) {
	t.Helper()
	rails, _, err := h.Rails(noPin)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if len(rails) == 0 {
		return
	}
	first := make([]int, len(h.GPUs))
	load := map[int]int{}
	for g := range h.GPUs {
		picks := pick(t, h, AtGPU(h.GPUs[g].BusID), len(rails), noPin)
		checkPicks(t, what, rails, picks)
		first[g] = slices.IndexFunc(rails, func(r Rail) bool { return r.Index == picks[0].Index })
		load[first[g]]++
	}
	for g, has := range first {
		for _, r := range h.nearestTo(g, rails) {
			if load[r]+1 < load[has] {
				t.Errorf("%s: GPU %d has %s with %d GPUs, and %s as near has %d", what, g, rails[has].Name(), load[has], rails[r].Name(), load[r])
			}
		}
		if !slices.Contains(h.nearestTo(g, rails), has) {
			t.Errorf("%s: GPU %d has %s, which is not among its nearest", what, g, rails[has].Name())
		}
	}
	if again := h.deal(rails); !reflect.DeepEqual(again, first) {
		t.Errorf("%s: %v, and then %v", what, first, again)
	}
}

// checkPicks: all rails, each once, near before far, each with a reason.
func checkPicks(t *testing.T, what string, rails []Rail, picks []Pick) {
	t.Helper()
	seen := map[int]bool{}
	for i, p := range picks {
		if seen[p.Index] || !p.Up() || p.Why == "" || i > 0 && p.Distance < picks[i-1].Distance {
			t.Errorf("%s: pick %d is %+v", what, i, p)
		}
		seen[p.Index] = true
	}
	if len(seen) != len(rails) {
		t.Errorf("%s: %d picks of %d", what, len(seen), len(rails))
	}
}

// randomHost puts GPUs and NICs below random bridges.
func randomHost(r *rand.Rand) *Host {
	h := &Host{NUMA: make([]Node, 1+r.IntN(2))}
	place := func(i int) (string, int) {
		root := r.IntN(4)
		at := fmt.Sprintf("pci0000:%d0/0000:%d0:01.0", root, root)
		for range r.IntN(3) {
			at += fmt.Sprintf("/0000:%d1:%02x.0", root, r.IntN(2))
		}
		return fmt.Sprintf("%s/0000:%d2:%02x.0", at, root, i), []int{root / 2, -1}[r.IntN(8)/7]
	}
	for i := range 1 + r.IntN(8) {
		at, node := place(i)
		h.GPUs = append(h.GPUs, GPU{BusID: lastDevice(at), NUMA: node, Path: at})
	}
	for i := range r.IntN(9) {
		at, node := place(i + 32)
		state := []string{"ACTIVE", "DOWN"}[r.IntN(5)/4]
		h.RDMA = append(h.RDMA, RDMA{Device: fmt.Sprint("mlx5_", i), Port: 1, State: state, Link: "Ethernet", Gbps: []float64{0, 100, 400}[r.IntN(3)], NUMA: node, Path: at})
	}
	return h
}

// TestDealMovesChains: the first GPU would take the only NIC of the last one, and two have to move
// for it.
func TestDealMovesChains(t *testing.T) {
	d := dealing{near: [][]int{{0, 1}, {1, 2}, {0}, {0}}, dealt: []int{0, 1, 0, 0}, load: []int{3, 1, 0}}
	for d.improve() {
	}
	if want := []int{2, 1, 1}; !reflect.DeepEqual(d.load, want) || !reflect.DeepEqual(d.dealt, []int{1, 2, 0, 0}) {
		t.Errorf("loads %v, want %v; dealt %v", d.load, want, d.dealt)
	}
}
