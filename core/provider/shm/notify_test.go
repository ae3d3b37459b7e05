// SPDX-License-Identifier: MIT

package shm

import (
	"sync"
	"sync/atomic"
	"testing"

	"mori/core/fabric"
	"mori/core/provider/internal/stream"
)

// writeNotices has a write n times with remote data 0 to n-1.
func writeNotices(t *testing.T, a *fakeEndpoint, n int) {
	local, _ := memory(t, 8)
	for i := range n {
		op := rmaOp(fabric.OpWrite, local, 0)
		op.Flags, op.Data = fabric.OpRemoteData, uint64(i)
		a.mover.RMA(stream.Ticket(i), op, regionKey(1))
	}
}

func TestHookReadsInsideDrain(t *testing.T) {
	a, b := newPair(t, wayCMA)
	lendRegion(t, b, 1, 64, allRights)
	seen := 0
	read := func() {
		var done [3]fabric.Completion
		for n, _ := b.cq.Read(done[:]); n > 0; n, _ = b.cq.Read(done[:]) {
			seen += n
		}
	}
	b.cq.OnReady(read)
	const n = 1000
	writeNotices(t, a, n)
	for i := range n {
		if err := a.wait(t, stream.Ticket(i)); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if seen != n {
		t.Fatalf("the hook saw %d of %d", seen, n)
	}
}

func TestParkedReadersMissNothing(t *testing.T) {
	a, b := newPair(t, wayCMA)
	lendRegion(t, b, 1, 64, allRights)
	const n = 20000
	var seen atomic.Int64
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			got := make([]fabric.Completion, 7)
			for {
				k, err := b.cq.Wait(t.Context(), got)
				if err != nil {
					return
				}
				if seen.Add(int64(k)) == n {
					close(done)
				}
			}
		}()
	}
	writeNotices(t, a, n)
	for i := range n {
		if err := a.wait(t, stream.Ticket(i)); err != nil {
			t.Fatal(err)
		}
	}
	<-done // the test's own deadline tells of a missed one
	if err := b.cq.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}
