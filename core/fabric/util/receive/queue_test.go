// SPDX-License-Identifier: MIT

package receive

import (
	"errors"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
)

// newRecv returns a queue with one feed and its completion queue.
func newRecv(t testing.TB, limit int, room uint64, selective bool) (*Queue, *Feed, *util.CQ) {
	qs := &util.Queues{}
	cq := newCQ(t, 64)
	if err := qs.BindCQ(cq, fabric.DirRecv, selective); err != nil {
		t.Fatal(err)
	}
	r := NewQueue(qs, limit)
	return r, r.Feed(FeedConfig{Room: room}), cq
}

// kept holds the buffers of recvOp, which ops name by address alone.
var kept [][]byte

func recvOp(ctx uint64, bufs ...[]byte) *fabric.Op {
	kept = append(kept, bufs...)
	op := &fabric.Op{Kind: fabric.OpRecv, Ctx: ctx}
	for i, b := range bufs {
		s := fabric.Seg{Addr: sys.AddrOf(b), Len: uint64(len(b))}
		if i == 0 {
			op.Seg = s
		} else {
			op.More = append(op.More, s)
		}
	}
	return op
}

// arrive plays the part of a connection's reader.
func arrive(f *Feed, msg string, data uint64, flags fabric.OpFlags) bool {
	if op, ok := f.Take(); ok {
		copy(sys.Bytes(op.Seg.Addr, int(op.Seg.Len)), msg)
		f.Filled(&op, uint64(len(msg)), data, flags)
		return true
	}
	if !f.Hold(uint64(len(msg))) {
		return false
	}
	f.Deliver([]byte(msg), data, flags, 0)
	return true
}

func TestRecvMatchesInOrder(t *testing.T) {
	r, f, cq := newRecv(t, 4, 1000, false)
	a, b, c := make([]byte, 8), make([]byte, 8), make([]byte, 8)
	if err := r.Post(recvOp(1, a)); err != nil {
		t.Fatal(err)
	}
	arrive(f, "one", 11, fabric.OpRemoteData)
	arrive(f, "two", 12, 0)
	arrive(f, "three", 13, fabric.OpRemoteData)
	for i, buf := range [][]byte{b, c} {
		if err := r.Post(recvOp(uint64(2+i), buf)); err != nil {
			t.Fatal(err)
		}
	}
	want := []fabric.Completion{
		{Ctx: 1, Kind: fabric.OpRecv, Len: 3, Flags: fabric.OpRemoteData, Data: 11},
		{Ctx: 2, Kind: fabric.OpRecv, Len: 3},
		{Ctx: 3, Kind: fabric.OpRecv, Len: 5, Flags: fabric.OpRemoteData, Data: 13},
	}
	for _, w := range want {
		if got := readOne(t, cq); got != w {
			t.Errorf("got %+v, want %+v", got, w)
		}
	}
	if string(a[:3])+string(b[:3])+string(c[:5]) != "onetwothree" {
		t.Errorf("got %q %q %q", a, b, c)
	}
	if f.held != 0 {
		t.Errorf("%d bytes are still held", f.held)
	}
}

// TestRecvPostedWhileArriving posts after the reader saw no receive and before the message is
// whole.
func TestRecvPostedWhileArriving(t *testing.T) {
	r, f, cq := newRecv(t, 4, 1000, false)
	if _, ok := f.Take(); ok || !f.Hold(3) {
		t.Fatal("no room")
	}
	buf := make([]byte, 8)
	if err := r.Post(recvOp(1, buf)); err != nil {
		t.Fatal(err)
	}
	f.Deliver([]byte("one"), 0, 0, 0)
	if c := readOne(t, cq); c.Ctx != 1 || c.Len != 3 || string(buf[:3]) != "one" || f.held != 0 {
		t.Fatalf("got %+v, %q, %d held", c, buf, f.held)
	}
}

func TestRecvScattersAndTruncates(t *testing.T) {
	r, f, cq := newRecv(t, 4, 1000, false)
	a, none, b := make([]byte, 2), []byte{}, make([]byte, 3)
	arrive(f, "12345", 0, 0)
	arrive(f, "123456", 7, fabric.OpRemoteData)
	if err := r.Post(recvOp(1, a, none, b)); err != nil {
		t.Fatal(err)
	}
	if c := readOne(t, cq); c.Len != 5 || string(a)+string(b) != "12345" {
		t.Fatalf("got %+v, %q %q", c, a, b)
	}
	if err := r.Post(recvOp(2, a, b)); err != nil {
		t.Fatal(err)
	}
	var e fabric.ErrEntry
	if err := cq.ReadErr(&e); err != nil || e.Err != fabric.ErrTruncated || e.Ctx != 2 || e.Len != 5 || e.Data != 7 {
		t.Fatalf("got %+v, %v", e, err)
	}
}

func TestRecvBounds(t *testing.T) {
	r, f, cq := newRecv(t, 2, 100+messageCost, false)
	if f.Hold(101) || f.Hold(1<<63) || !f.Hold(100) || f.Hold(0) {
		t.Fatal("room is not what was given")
	}
	f.Unhold(100)
	if !arrive(f, "x", 0, 0) {
		t.Fatal("a promise that was given up takes room")
	}
	for arrive(f, "", 0, 0) {
	}
	buf := make([]byte, 1)
	n := 0
	for ; r.early.len() > 0; n++ {
		if err := r.Post(recvOp(uint64(n), buf)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := r.Post(recvOp(9, buf)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Post(recvOp(9, buf)); err != fabric.ErrAgain {
		t.Fatalf("third of two: %v", err)
	}
	if got, err := cq.Read(make([]fabric.Completion, 64)); got != n || err != nil {
		t.Fatalf("got %d, %v; want %d", got, err, n)
	}
}

func TestRecvNeedsPlaceInCQ(t *testing.T) {
	r, _, _ := newRecv(t, 100, 1000, false)
	for range 64 {
		if err := r.Post(recvOp(1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Post(recvOp(1)); err != fabric.ErrAgain {
		t.Fatalf("65 of 64 places: %v", err)
	}
}

func TestRecvCancelAndEnd(t *testing.T) {
	r, f, cq := newRecv(t, 8, 1000, false)
	for _, ctx := range []uint64{1, 2, 1, 3} {
		if err := r.Post(recvOp(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	taken, _ := f.Take()
	r.Cancel(1)
	r.Cancel(77)
	f.Failed(&taken, fabric.ErrConnReset, "gone")
	r.End(fabric.ErrShutdown, "bye")
	r.End(fabric.ErrClosed, "again")
	want := []fabric.ErrEntry{
		{Completion: fabric.Completion{Ctx: 1, Kind: fabric.OpRecv}, Err: fabric.ErrCanceled},
		{Completion: fabric.Completion{Ctx: 1, Kind: fabric.OpRecv}, Err: fabric.ErrConnReset, Detail: "gone"},
		{Completion: fabric.Completion{Ctx: 2, Kind: fabric.OpRecv}, Err: fabric.ErrShutdown, Detail: "bye"},
		{Completion: fabric.Completion{Ctx: 3, Kind: fabric.OpRecv}, Err: fabric.ErrShutdown, Detail: "bye"},
	}
	for _, w := range want {
		var e fabric.ErrEntry
		if err := cq.ReadErr(&e); err != nil || e != w {
			t.Errorf("got %+v, %v; want %+v", e, err, w)
		}
	}
	if err := r.Post(recvOp(4)); err != fabric.ErrShutdown {
		t.Errorf("post after end: %v", err)
	}
	if f.Hold(0) {
		t.Error("room after end")
	}
	if err := cq.Reserve(64); err != nil {
		t.Errorf("places are lost: %v", err)
	}
}

func TestRecvSelective(t *testing.T) {
	r, f, cq := newRecv(t, 8, 1000, true)
	op := recvOp(2)
	op.Flags = fabric.OpWantCQE
	if err := errors.Join(r.Post(recvOp(1)), r.Post(op)); err != nil {
		t.Fatal(err)
	}
	arrive(f, "", 0, 0)
	arrive(f, "", 0, 0)
	if c := readOne(t, cq); c.Ctx != 2 {
		t.Fatalf("got %+v", c)
	}
	if err := cq.Reserve(64); err != nil {
		t.Errorf("places are lost: %v", err)
	}
}

func TestRecvDoesNotAllocate(t *testing.T) {
	r, f, cq := newRecv(t, 8, 1000, false)
	buf := make([]byte, 8)
	op := recvOp(1, buf)
	dst := make([]fabric.Completion, 8)
	if n := testing.AllocsPerRun(1000, func() {
		_ = r.Post(op)
		got, _ := f.Take()
		f.Filled(&got, 8, 0, 0)
		_, _ = cq.Read(dst)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
