// SPDX-License-Identifier: MIT

package shm

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/shm/internal/ring"
)

// writeNotices finishes n writes with remote data 0 to n-1.
func writeNotices(t *testing.T, a *fakeEndpoint, n int) {
	local, _ := memory(t, 8)
	for i := range n {
		op := rmaOp(fabric.OpWrite, local, 0)
		op.Flags, op.Data = fabric.OpRemoteData, uint64(i)
		a.path.RMA(conn.Ticket(i), op, regionKey(1))
	}
}

func TestHookReadsInsideDrain(t *testing.T) {
	a, b := newPair(t, wayCMA)
	grantRegion(t, b, 1, 64, allRights)
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
		if err := a.wait(t, conn.Ticket(i)); err != nil {
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
	grantRegion(t, b, 1, 64, allRights)
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
		if err := a.wait(t, conn.Ticket(i)); err != nil {
			t.Fatal(err)
		}
	}
	<-done // the test's own deadline detects a missed one
	if err := b.cq.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// Remote data in the ring is delivered only if the peer has shown the key of a region. A ticket
// that was refused or never requested is invalid.
func TestANoticeNeedsItsRegionsKey(t *testing.T) {
	for name, ticket := range map[string]uint64{"a wrong key": 1, "no right to write": 2, "no key": 7, "nothing": 0, "a share": 1 << 63} {
		a, b := newPair(t, wayCMA)
		grantRegion(t, b, 1, 64, allRights)
		grantRegion(t, b, 2, 64, fabric.AccessRemoteRead)
		wrong := regionKey(1)
		wrong.Secret[3] ^= 1
		local, _ := memory(t, 8)
		a.path.RMA(1, rmaOp(fabric.OpWrite, local, 0), wrong)
		if err := a.wait(t, 1); !errors.Is(err, fabric.ErrNoKey) {
			t.Fatalf("%s: a write ended with %v", name, err)
		}
		a.path.RMA(2, rmaOp(fabric.OpRead, local, 0), regionKey(2))
		if err := a.wait(t, 2); err != nil {
			t.Fatalf("%s: a read ended with %v", name, err)
		}
		putNotice(t, a, ring.Entry{42, 8, ticket})
		b.path.inbox.serve()
		var done [1]fabric.Completion
		if n, _ := b.cq.Read(done[:]); n != 0 {
			t.Errorf("%s: completion %+v", name, done[0])
		}
		select {
		case err := <-b.failed:
			if !errors.Is(err, fabric.ErrProtocol) {
				t.Errorf("%s: the connection ended by %v, want %v", name, err, fabric.ErrProtocol)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the connection goes on", name)
		}
	}
}

// Remote data that waits in the ring is reported even if its region was closed in the meantime.
func TestANoticeOutlivesItsRegion(t *testing.T) {
	a, b := newPair(t, wayCMA)
	_, mr := grantRegion(t, b, 1, 64, allRights)
	writeNotices(t, a, 3)
	for i := range 3 {
		if err := a.wait(t, conn.Ticket(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	b.path.inbox.mu.Lock()
	b.path.inbox.proven = 0
	b.path.inbox.mu.Unlock()
	var done [4]fabric.Completion
	if n, err := b.cq.Read(done[:]); n != 3 || done[0].Data+done[1].Data+done[2].Data != 0+1+2 {
		t.Errorf("%d completions, %v, %v; want those of 3 writes in any order", n, done, err)
	}
	select {
	case err := <-b.failed:
		t.Error(err)
	default:
	}
}

// putNotice puts an entry into the peer's ring like a program that knows the protocol and forges
// it.
func putNotice(t *testing.T, a *fakeEndpoint, e ring.Entry) {
	t.Helper()
	a.path.notifier.mu.Lock()
	defer a.path.notifier.mu.Unlock()
	if ok, err := a.path.notifier.ring.Put(e); !ok || err != nil {
		t.Fatal(ok, err)
	}
}
