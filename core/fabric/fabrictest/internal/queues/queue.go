// SPDX-License-Identifier: MIT

package queues

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// QueueCases are the cases of completion queues.
var QueueCases = []rig.Case{
	{Name: "wait ends with its context, a signal, or the queue", Run: waitEnds},
	{Name: "a parked reader wakes for each kind of entry", Run: wakes},
	{Name: "a full queue refuses ops and loses none", Run: overrun},
	{Name: "a target that does not read blocks the writer and loses nothing", Run: passive},
	{Name: "one queue for many endpoints", Run: func(r *rig.Rig) {
		ha, hb := r.Host(), r.Host()
		cq := ha.CQ(256)
		far, src := r.Alloc(8*64), r.Patterned(64, 1)
		to := ha.Imports(hb.Reg(far, rig.BothRights).Raw())
		var as []*rig.Node
		for range 8 {
			a := ha.Node(rig.Shape{CQ: cq})
			r.Join(a, hb.Node(rig.Shape{}))
			as = append(as, a)
		}
		for i, a := range as {
			a.Submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(uint64(64*i), 64), Ctx: uint64(i)})
		}
		if left := rig.Tally(as[0], len(as), 10*time.Second); left != 0 {
			r.Fatalf("%d completions are missing", left)
		}
		for i := range as {
			r.Has(far.At(64*i, 64), 1, 0)
		}
	}},
	{Name: "several readers get each entry once", Run: readers},
	{Name: "a hook sees every entry", Run: hooked},
}

// QueueMsgCases are the cases of completion queues, for EPMsg only.
var QueueMsgCases = []rig.Case{
	{Name: "an event queue wakes a parked reader", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{})
		got := make(chan fabric.Event, 1)
		go func() {
			e, _ := a.EQ.Wait(r.Ctx)
			got <- e
		}()
		time.Sleep(10 * time.Millisecond)
		r.Must(b.Conn.Shutdown())
		if e := <-got; e.Kind != fabric.EventShutdown || e.EP != a.EP {
			r.Errorf("got %+v", e)
		}
		ctx, cancel := context.WithTimeout(r.Ctx, 10*time.Millisecond)
		defer cancel()
		_, err := a.EQ.Wait(ctx)
		r.Want("nothing more comes", err, context.DeadlineExceeded)
		_, err = a.EQ.Read()
		r.Want("nothing more is there", err, fabric.ErrAgain)
	}},
}

func waitEnds(r *rig.Rig) {
	cq, dst := r.Host().CQ(16), make([]fabric.Completion, 1)
	ctx, cancel := context.WithTimeout(r.Ctx, 10*time.Millisecond)
	defer cancel()
	_, err := cq.Wait(ctx, dst)
	r.Want("deadline", err, context.DeadlineExceeded)
	r.Must(cq.Signal())
	if n, err := cq.Wait(r.Ctx, dst); n != 0 || err != nil {
		r.Errorf("signalled before: %d, %v", n, err)
	}
	time.AfterFunc(10*time.Millisecond, func() { _ = cq.Signal() })
	if n, err := cq.Wait(r.Ctx, dst); n != 0 || err != nil {
		r.Errorf("signalled while parked: %d, %v", n, err)
	}
	time.AfterFunc(10*time.Millisecond, func() { _ = cq.Close() })
	_, err = cq.Wait(r.Ctx, dst)
	r.Want("closed while parked", err, fabric.ErrClosed)
}

// wakes parks for long enough that spinning cannot be what notices.
func wakes(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{})
	src, far := r.Patterned(8, 1), r.Alloc(8)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	readOnly := a.Imports(b.Reg(far, fabric.AccessRemoteRead).Raw())
	write := fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 8)}
	notifying := write
	notifying.Flags = fabric.OpRemoteData
	refused := write
	refused.RSeg = readOnly.At(0, 8)
	b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: far.Seg()})
	for _, c := range []struct {
		name   string
		reader *rig.Node
		op     fabric.Op
		extra  int // other entries at a
	}{
		{"remote data", b, notifying, 1},
		{"remote data again", b, notifying, 1},
		{"a message", b, fabric.Op{Kind: fabric.OpSend, Seg: src.Seg()}, 1},
		{"an own write", a, write, 0},
		{"an own failure", a, refused, 0},
	} {
		got := make(chan error, 1)
		go func() {
			_, err := rig.Next(r.Ctx, c.reader.CQ)
			got <- err
		}()
		time.Sleep(30 * time.Millisecond)
		a.Submit(c.op)
		if err := <-got; err != nil {
			r.Errorf("%s: %v", c.name, err)
		}
		for range c.extra {
			a.Read()
		}
	}
}

func overrun(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{CQSize: 4})
	far, src := r.Alloc(8), r.Patterned(8, 1)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	for range 5 {
		count := 0
		for ; ; count++ {
			if count > 1<<20 {
				r.Fatal("no bound")
			}
			n, err := a.Try(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 8), Ctx: uint64(count)})
			if n == 0 {
				r.Want("full", err, fabric.ErrAgain)
				break
			}
		}
		if count < 4 {
			r.Fatalf("a queue of 4 took %d ops", count)
		}
		if left := rig.Tally(a, count, 10*time.Second); left != 0 {
			r.Fatalf("%d of %d completions are lost", left, count)
		}
	}
}

// passive floods a target with more remote data than its queue and the way there can hold.
func passive(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{CQSize: 8})
	far, src := r.Alloc(8), r.Patterned(8, 1)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	sent, done := uint64(0), 0
	// One round in which nothing moves for this long is taken for a standstill.
	for still := time.Now(); time.Since(still) < 100*time.Millisecond && sent < 1<<20; {
		n, _ := a.Try(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.Seg(), RSeg: to.At(0, 8), Data: sent})
		sent += uint64(n)
		k := rig.DrainQueue(a)
		if done += k; k > 0 || n > 0 {
			still = time.Now()
		} else {
			time.Sleep(100 * time.Microsecond)
		}
	}
	if sent == 1<<20 {
		r.Skip("the provider holds more remote data than this case sends")
	}
	seen := make([]bool, sent)
	for range sent {
		c := b.OK(0)
		if c.Kind != fabric.OpRemoteWrite || c.Data >= sent || seen[c.Data] {
			r.Fatalf("got %+v of %d", c, sent)
		}
		seen[c.Data] = true
	}
	b.Silent()
	for ; done < int(sent); done++ {
		a.OK(0)
	}
	for taken := 0; taken == 0; rig.DrainQueue(a) {
		taken, _ = a.Try(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.Seg(), RSeg: to.At(0, 8), Data: 1 << 40})
	}
	if c := b.OK(0); c.Data != 1<<40 {
		r.Errorf("after the flood: %+v", c)
	}
}

// hooked has nobody in Wait: the hook reads each entry when it is added.
func hooked(r *rig.Rig) {
	const count = 1000
	a, b := r.Pair(rig.Shape{CQSize: 64})
	src, far := r.Patterned(8, 1), r.Alloc(8)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	seenA, seenB := hook(a), hook(b)
	for i := range count {
		b.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: far.Seg()})
		at := to.At(0, 8)
		if !r.DenialEnds() {
			at = to.At(uint64(i%2), 8) // every other one is out of range
		}
		a.Submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: at}, fabric.Op{Kind: fabric.OpSend, Seg: src.Seg()})
	}
	for _, c := range []struct {
		seen *atomic.Int64
		want int64
	}{{seenA, 2 * count}, {seenB, count}} {
		for c.seen.Load() < c.want && r.Ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if n := c.seen.Load(); n != c.want {
			r.Errorf("%d of %d entries were seen", n, c.want)
		}
	}
	for _, n := range []*rig.Node{a, b} {
		n.CQ.OnReady(nil)
		n.Silent()
	}
	rig.StillWorks(r, a, b)
}

// hook counts the entries of n as they come.
func hook(n *rig.Node) *atomic.Int64 {
	var seen atomic.Int64
	n.CQ.OnReady(func() {
		var dst [4]fabric.Completion
		for {
			k, err := n.CQ.Read(dst[:])
			if errors.Is(err, fabric.ErrAvail) && n.CQ.ReadErr(&fabric.ErrEntry{}) == nil {
				k = 1
			}
			if seen.Add(int64(k)); k == 0 && !errors.Is(err, fabric.ErrAvail) {
				return
			}
		}
	})
	return &seen
}

func readers(r *rig.Rig) {
	const count = 2000
	a, b := r.Pair(rig.Shape{CQSize: 64})
	src, far := r.Patterned(8, 1), r.Alloc(8)
	to := a.Imports(b.Reg(far, rig.BothRights).Raw())
	ctx, stop := context.WithCancel(r.Ctx)
	defer stop()
	seen := make(chan uint64, count)
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				e, err := rig.Next(ctx, a.CQ)
				if err != nil {
					return
				}
				seen <- e.Ctx
			}
		}()
	}
	for i := range uint64(count) {
		a.Submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: to.At(0, 8), Ctx: i})
	}
	got := make(map[uint64]bool)
	for range count {
		select {
		case i := <-seen:
			if got[i] {
				r.Fatalf("entry %d was read twice", i)
			}
			got[i] = true
		case <-r.Ctx.Done():
			r.Fatalf("%d of %d entries were read", len(got), count)
		}
	}
	stop()
	wg.Wait()
}
