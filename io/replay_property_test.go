// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"
)

// TestAnyOrderOfEndsCutsAndCancels applies random operations, for many seeds, to transfers that
// each own a slot of memory: it cuts both wires after random ops, cancels transfers, and makes
// wires reject connections for a while. In every case, a success has moved exactly its bytes, no
// transfer stays in a ledger or parked, and successes were reported in order.
func TestAnyOrderOfEndsCutsAndCancels(t *testing.T) {
	const slot, slots = 160 << 10, 8 // three ops each
	seeds := 40
	if testing.Short() {
		seeds = 8
	}
	replays, canceled, succeeded := uint64(0), 0, 0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 11))
		w := newWired(t, slot*slots, nil)
		fill(w.a.mem, seed)
		clear(w.b.mem)
		all := make([]*Status, slots)
		for i := range uint64(slots) {
			switch rng.IntN(4) {
			case 0:
				w.shm.cutAfter(rng.Int64N(5))
			case 1:
				w.tcp.cutAfter(rng.Int64N(5))
			case 2:
				w.shm.down.Store(!w.shm.down.Load())
			}
			all[i] = w.s.Write([]uint64{i * slot}, []uint64{i * slot}, []uint64{slot}, i)
			if rng.IntN(5) == 0 {
				if err := all[rng.Uint64N(i+1)].Cancel(deadline(t)); err != nil {
					t.Fatalf("seed %d: cancel: %v", seed, err)
				}
			}
		}
		w.shm.down.Store(false)
		for i := len(all) - 1; i >= 0; i-- { // the last first: its success implies that of all earlier ones
			c := all[i].Wait(deadline(t))
			here, there := w.a.mem[i*slot:(i+1)*slot], w.b.mem[i*slot:(i+1)*slot]
			switch {
			case c == CodeSuccess && !bytes.Equal(here, there):
				t.Fatalf("seed %d: transfer %d is a success, and its bytes differ", seed, i)
			case c == CodeSuccess:
				succeeded++
			case c == CodeErrBadState:
				canceled++
			default:
				t.Fatalf("seed %d: transfer %d: %v %s", seed, i, c, all[i].Message())
			}
			for k := 0; k < i && c == CodeSuccess; k++ {
				if all[k].Code() == CodeInProgress {
					t.Fatalf("seed %d: transfer %d is reported before transfer %d", seed, i, k)
				}
			}
		}
		w.empty(t)
		replays += w.a.Describe().Counters.Replays
	}
	if replays == 0 || canceled == 0 || succeeded == 0 {
		t.Errorf("%d replays, %d canceled, %d succeeded: the test tests nothing", replays, canceled, succeeded)
	}
	t.Logf("%d replays, %d canceled, %d succeeded", replays, canceled, succeeded)
}

// empty waits until no transfer is on any path of a or parked. Notifications may outlast their
// transfers.
func (w *wired) empty(t *testing.T) {
	t.Helper()
	p := w.a.peers.Get("b")
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		left := 0
		for _, q := range p.Paths() {
			left += q.Ledger().Len()
		}
		left += p.Pending.Parked.Len()
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d transfers are left over", left)
		}
	}
}
