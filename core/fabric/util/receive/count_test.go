// SPDX-License-Identifier: MIT

package receive

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// TestQueuesCount holds what is counted against what an endpoint's ops did.
func TestQueuesCount(t *testing.T) {
	var q util.Queues
	cq, ops, bytes := newCQ(t, 64), newCounter(t, fabric.CountOps), newCounter(t, fabric.CountBytes)
	if err := errors.Join(q.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, true), q.BindCounter(ops, fabric.CountSend|fabric.CountRecv),
		q.BindCounter(bytes, fabric.CountWrite)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		c      fabric.Counter
		events fabric.CountEvents
		want   error
	}{
		{"no counter", (*util.Counter)(nil), fabric.CountRead, fabric.ErrInvalid},
		{"no event", ops, 0, fabric.ErrBadFlags},
		{"an unknown event", ops, fabric.CountAll + 1, fabric.ErrBadFlags},
		{"an event twice", ops, fabric.CountRead | fabric.CountWrite, fabric.ErrOpBadState},
	} {
		if err := q.BindCounter(c.c, c.events); !errors.Is(err, c.want) {
			t.Errorf("bind %s: %v, want %v", c.name, err, c.want)
		}
	}
	if err := cq.Reserve(8); err != nil {
		t.Fatal(err)
	}
	q.Done(&fabric.Op{Kind: fabric.OpSend}, 100)
	q.Done(&fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpInject}, 100)
	q.Failed(&fabric.Op{Kind: fabric.OpSend}, fabric.ErrShutdown, "")
	q.Done(&fabric.Op{Kind: fabric.OpRead}, 100)
	q.Done(&fabric.Op{Kind: fabric.OpFetchAtomic}, 8)
	q.Done(&fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpWantCQE}, 100)
	q.Done(&fabric.Op{Kind: fabric.OpAtomic}, 8)
	q.Failed(&fabric.Op{Kind: fabric.OpWrite}, fabric.ErrShutdown, "")
	r := NewQueue(&q, 8)
	f := r.Feed(FeedConfig{Room: 1000})
	arrive(f, "four", 0, 0)
	arrive(f, "five.", 0, 0)
	for range 3 {
		if err := r.Post(recvOp(1, make([]byte, 4))); err != nil {
			t.Fatal(err)
		}
	}
	r.Cancel(1)
	if ops.Read() != 2+1 || ops.ReadErr() != 1+2 || bytes.Read() != 108 || bytes.ReadErr() != 1 {
		t.Errorf("%d ops and %d failures, %d bytes and %d failures", ops.Read(), ops.ReadErr(), bytes.Read(), bytes.ReadErr())
	}
	if err := ops.Close(); !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("close of a bound counter: %v", err)
	}
	q.Unbind()
	if err := errors.Join(ops.Close(), bytes.Close()); err != nil {
		t.Error(err)
	}
}

// TestCompletionsAreCounted: who reads a completion, or an error, finds it counted.
func TestCompletionsAreCounted(t *testing.T) {
	const each = 2000
	var q util.Queues
	cq, c := newCQ(t, 64), newCounter(t, fabric.CountOps)
	if err := errors.Join(q.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, false), q.BindCounter(c, fabric.CountAll)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	r := NewQueue(&q, 8)
	f := r.Feed(FeedConfig{Room: 1000})
	start(&wg, func() {
		wait := func(fn func() error) {
			for fn() == fabric.ErrAgain {
				runtime.Gosched()
			}
		}
		for range each {
			wait(func() error { return cq.Reserve(2) })
			q.Done(&fabric.Op{Kind: fabric.OpSend}, 1)
			q.Failed(&fabric.Op{Kind: fabric.OpSend}, fabric.ErrShutdown, "")
			wait(func() error { return r.Post(&fabric.Op{Kind: fabric.OpRecv}) })
			arrive(f, "", 0, 0)
			wait(func() error { return r.Post(&fabric.Op{Kind: fabric.OpRecv}) })
			r.Cancel(0)
		}
	})
	ctx := testContext(t)
	var dst [4]fabric.Completion
	var good, bad uint64
	for good+bad < 4*each {
		n, err := cq.Wait(ctx, dst[:])
		good += uint64(n)
		if err == fabric.ErrAvail {
			err = cq.ReadErr(&fabric.ErrEntry{})
			bad++
		}
		if err != nil || c.Read() < good || c.ReadErr() < bad {
			t.Fatalf("%d and %d were read, %d and %d counted, %v", good, bad, c.Read(), c.ReadErr(), err)
		}
	}
	wg.Wait()
}
