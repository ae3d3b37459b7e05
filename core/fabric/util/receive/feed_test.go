// SPDX-License-Identifier: MIT

package receive

import (
	"sync"
	"testing"

	"mori/core/fabric"
)

func TestFeedsOfOneQueueHaveRoomOfTheirOwn(t *testing.T) {
	r, a, cq := newRecv(t, 8, 2*(3+messageCost), false)
	b := r.Feed(FeedConfig{Room: 1 + messageCost, Source: func() fabric.AVAddr { return 7 }})
	if !arrive(a, "one", 1, fabric.OpRemoteData) || !arrive(b, "x", 2, fabric.OpRemoteData) || !arrive(a, "two", 3, fabric.OpRemoteData) {
		t.Fatal("no room in an empty queue")
	}
	if arrive(a, "", 0, 0) || arrive(b, "", 0, 0) {
		t.Fatal("more than the room")
	}
	if a.Held() != 2*(3+messageCost) || b.Held() != 1+messageCost {
		t.Fatalf("%d and %d held", a.Held(), b.Held())
	}
	for i, want := range []fabric.Completion{
		{Kind: fabric.OpRecv, Flags: fabric.OpRemoteData, Len: 3, Data: 1},
		{Kind: fabric.OpRecv, Flags: fabric.OpRemoteData, Len: 1, Data: 2, Src: 7},
		{Kind: fabric.OpRecv, Flags: fabric.OpRemoteData, Len: 3, Data: 3},
	} {
		if err := r.Post(recvOp(0, make([]byte, 8))); err != nil {
			t.Fatal(err)
		}
		if got := readOne(t, cq); got != want {
			t.Errorf("message %d: got %+v, want %+v", i, got, want)
		}
	}
	if a.Held() != 0 || b.Held() != 0 {
		t.Errorf("%d and %d are still held", a.Held(), b.Held())
	}
}

func TestFeedHearsOfChangeAfterRefusal(t *testing.T) {
	r, _, _ := newRecv(t, 8, 0, false)
	var notified, other int
	f := r.Feed(FeedConfig{Room: 4 + messageCost, Changed: func() { notified++ }})
	g := r.Feed(FeedConfig{Room: 1000, Changed: func() { other++ }})
	expect := func(step string, want, wantOther int) {
		t.Helper()
		if notified != want || other != wantOther {
			t.Fatalf("%s: notified %d and %d times, want %d and %d", step, notified, other, want, wantOther)
		}
	}
	post := func() {
		t.Helper()
		if err := r.Post(recvOp(1, make([]byte, 8))); err != nil {
			t.Fatal(err)
		}
	}
	post()
	expect("a receive that nobody asked for", 0, 0)
	if _, ok := f.Take(); !ok {
		t.Fatal("no receive")
	}
	if _, ok := f.Take(); ok {
		t.Fatal("a second receive")
	}
	if _, ok := g.Take(); ok {
		t.Fatal("a second receive")
	}
	post()
	expect("a receive that both asked for", 1, 1)
	if _, ok := g.Take(); !ok {
		t.Fatal("no receive")
	}
	if !arrive(f, "full", 0, 0) || arrive(f, "", 0, 0) {
		t.Fatal("room is not what was given")
	}
	post()
	if notified < 2 {
		t.Fatal("room came back, and the feed was not notified")
	}
	if f.Held() != 0 {
		t.Fatalf("%d held", f.Held())
	}
	was := notified
	if _, ok := f.Take(); ok {
		t.Fatal("a receive")
	}
	r.End(fabric.ErrClosed, "")
	if notified <= was {
		t.Fatal("the queue ended, and the feed was not notified")
	}
}

func TestFeedPlaced(t *testing.T) {
	r, _, _ := newRecv(t, 8, 0, false)
	var placed []uint64
	f := r.Feed(FeedConfig{Room: 1000, Placed: func(token uint64) { placed = append(placed, token) }})
	buf := make([]byte, 8)
	deliver := func(msg string, token uint64) {
		if !f.Hold(uint64(len(msg))) {
			t.Fatal("no room")
		}
		f.Deliver([]byte(msg), 0, 0, token)
	}
	deliver("early", 5)
	deliver("silent", 0)
	if len(placed) != 0 {
		t.Fatalf("%v placed before there was a receive", placed)
	}
	for range 3 {
		if err := r.Post(recvOp(1, buf)); err != nil {
			t.Fatal(err)
		}
	}
	deliver("late", 6)
	if len(placed) != 2 || placed[0] != 5 || placed[1] != 6 {
		t.Fatalf("placed %v, want 5 and 6", placed)
	}
	deliver("dropped", 8)
	r.End(fabric.ErrClosed, "")
	if len(placed) != 2 {
		t.Fatalf("%v: a message that was dropped is placed", placed)
	}
}

// TestFeedEnd: what a connection left whole is received after its end, and counts as orphaned until
// then.
func TestFeedEnd(t *testing.T) {
	r, f, cq := newRecv(t, 8, 1000, false)
	live := r.Feed(FeedConfig{Room: 1000})
	arrive(f, "one", 0, 0)
	arrive(live, "two", 0, 0)
	arrive(f, "three", 0, 0)
	if r.Orphaned() != 0 {
		t.Fatalf("%d orphaned with both connected", r.Orphaned())
	}
	f.End()
	f.End()
	for i, want := range []uint64{8 + 2*messageCost, 5 + messageCost, 5 + messageCost, 0} {
		if got := r.Orphaned(); got != want {
			t.Fatalf("after %d receives: %d orphaned, want %d", i, got, want)
		}
		if i == 3 {
			break
		}
		if err := r.Post(recvOp(uint64(i), make([]byte, 8))); err != nil {
			t.Fatal(err)
		}
		if c := readOne(t, cq); c.Len != []uint64{3, 3, 5}[i] {
			t.Fatalf("receive %d: %+v", i, c)
		}
	}
	arrive(f, "", 0, 0)
	r.End(fabric.ErrClosed, "")
	if r.Orphaned() != 0 {
		t.Errorf("%d orphaned in a queue that ended", r.Orphaned())
	}
}

// TestFeedsTogether has several connections with little room, which wait for Changed, and one
// poster.
func TestFeedsTogether(t *testing.T) {
	const feeds, each = 3, 2000
	r, _, cq := newRecv(t, 4, 0, false)
	ctx := testContext(t)
	var wg sync.WaitGroup
	for n := range feeds {
		changed := make(chan struct{}, 1)
		f := r.Feed(FeedConfig{
			Room:    3 * (1 + messageCost),
			Source:  func() fabric.AVAddr { return fabric.AVAddr(n + 1) },
			Changed: func() { tryKick(changed) },
		})
		start(&wg, func() {
			for i := range uint64(each) {
				for !arrive(f, "m", i, fabric.OpRemoteData) {
					select {
					case <-changed:
					case <-ctx.Done():
						t.Error("nobody was notified of a change")
						return
					}
				}
			}
			f.End()
		})
	}
	var free []*fabric.Op
	ops := map[uint64]*fabric.Op{}
	for i := range uint64(64) {
		ops[i] = recvOp(i, make([]byte, 1))
		free = append(free, ops[i])
	}
	var next [feeds + 1]uint64
	dst := make([]fabric.Completion, 8)
	for got := 0; got < feeds*each; {
		for len(free) > 0 && r.Post(free[0]) == nil {
			free = free[1:]
		}
		n, err := cq.Wait(ctx, dst)
		if err != nil {
			t.Fatalf("after %d messages: %v", got, err)
		}
		for _, c := range dst[:n] {
			if c.Data != next[c.Src] {
				t.Fatalf("feed %d: message %d, want %d", c.Src, c.Data, next[c.Src])
			}
			next[c.Src]++
			free = append(free, ops[c.Ctx])
		}
		got += n
	}
	wg.Wait()
	if r.Orphaned() != 0 {
		t.Errorf("%d orphaned of nothing", r.Orphaned())
	}
}

func tryKick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
