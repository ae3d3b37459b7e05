// SPDX-License-Identifier: MIT

package fabrictest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
)

var queueCases = []testCase{
	{"wait ends with its context, a signal, or the queue", waitEnds},
	{"a parked reader wakes for each kind of entry", wakes},
	{"a full queue refuses ops and loses none", overrun},
	{"a target that does not read blocks the writer and loses nothing", passive},
	{"one queue for many endpoints", func(r *rig) {
		ha, hb := r.host(), r.host()
		cq := ha.cq(256)
		far, src := r.alloc(8*64), r.patterned(64, 1)
		to := ha.imports(hb.reg(far, bothRights).Raw())
		var as []*node
		for range 8 {
			a := ha.node(shape{cq: cq})
			r.join(a, hb.node(shape{}))
			as = append(as, a)
		}
		for i, a := range as {
			a.submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(uint64(64*i), 64), Ctx: uint64(i)})
		}
		if left := tally(as[0], len(as), 10*time.Second); left != 0 {
			r.Fatalf("%d completions are missing", left)
		}
		for i := range as {
			r.has(far.at(64*i, 64), 1, 0)
		}
	}},
	{"several readers get each entry once", readers},
	{"a hook sees every entry", hooked},
}

var queueMsgCases = []testCase{
	{"an event queue wakes a parked reader", func(r *rig) {
		a, b := r.pair(shape{})
		got := make(chan fabric.Event, 1)
		go func() {
			e, _ := a.eq.Wait(r.ctx)
			got <- e
		}()
		time.Sleep(10 * time.Millisecond)
		r.must(b.cn.Shutdown())
		if e := <-got; e.Kind != fabric.EventShutdown || e.EP != a.ep {
			r.Errorf("got %+v", e)
		}
		ctx, cancel := context.WithTimeout(r.ctx, 10*time.Millisecond)
		defer cancel()
		_, err := a.eq.Wait(ctx)
		r.want("nothing more comes", err, context.DeadlineExceeded)
		_, err = a.eq.Read()
		r.want("nothing more is there", err, fabric.ErrAgain)
	}},
}

func waitEnds(r *rig) {
	cq, dst := r.host().cq(16), make([]fabric.Completion, 1)
	ctx, cancel := context.WithTimeout(r.ctx, 10*time.Millisecond)
	defer cancel()
	_, err := cq.Wait(ctx, dst)
	r.want("deadline", err, context.DeadlineExceeded)
	r.must(cq.Signal())
	if n, err := cq.Wait(r.ctx, dst); n != 0 || err != nil {
		r.Errorf("signalled before: %d, %v", n, err)
	}
	time.AfterFunc(10*time.Millisecond, func() { _ = cq.Signal() })
	if n, err := cq.Wait(r.ctx, dst); n != 0 || err != nil {
		r.Errorf("signalled while parked: %d, %v", n, err)
	}
	time.AfterFunc(10*time.Millisecond, func() { _ = cq.Close() })
	_, err = cq.Wait(r.ctx, dst)
	r.want("closed while parked", err, fabric.ErrClosed)
}

// wakes parks for long enough that spinning cannot be what notices.
func wakes(r *rig) {
	a, b := r.pair(shape{})
	src, far := r.patterned(8, 1), r.alloc(8)
	to := a.imports(b.reg(far, bothRights).Raw())
	readOnly := a.imports(b.reg(far, fabric.AccessRemoteRead).Raw())
	write := fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 8)}
	told := write
	told.Flags = fabric.OpRemoteData
	refused := write
	refused.RSeg = readOnly.at(0, 8)
	b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: far.seg()})
	for _, c := range []struct {
		name   string
		reader *node
		op     fabric.Op
		extra  int // other entries at a
	}{
		{"remote data", b, told, 1},
		{"remote data again", b, told, 1},
		{"a message", b, fabric.Op{Kind: fabric.OpSend, Seg: src.seg()}, 1},
		{"an own write", a, write, 0},
		{"an own failure", a, refused, 0},
	} {
		got := make(chan error, 1)
		go func() {
			_, err := next(r.ctx, c.reader.cq)
			got <- err
		}()
		time.Sleep(30 * time.Millisecond)
		a.submit(c.op)
		if err := <-got; err != nil {
			r.Errorf("%s: %v", c.name, err)
		}
		for range c.extra {
			a.read()
		}
	}
}

func overrun(r *rig) {
	a, b := r.pair(shape{cqSize: 4})
	far, src := r.alloc(8), r.patterned(8, 1)
	to := a.imports(b.reg(far, bothRights).Raw())
	for range 5 {
		count := 0
		for ; ; count++ {
			if count > 1<<20 {
				r.Fatal("no bound")
			}
			n, err := a.try(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 8), Ctx: uint64(count)})
			if n == 0 {
				r.want("full", err, fabric.ErrAgain)
				break
			}
		}
		if count < 4 {
			r.Fatalf("a queue of 4 took %d ops", count)
		}
		if left := tally(a, count, 10*time.Second); left != 0 {
			r.Fatalf("%d of %d completions are lost", left, count)
		}
	}
}

// passive floods a target with more remote data than its queue and the way there can hold.
func passive(r *rig) {
	a, b := r.pair(shape{cqSize: 8})
	far, src := r.alloc(8), r.patterned(8, 1)
	to := a.imports(b.reg(far, bothRights).Raw())
	sent, done := uint64(0), 0
	// One round in which nothing moves for this long is taken for a standstill.
	for still := time.Now(); time.Since(still) < 100*time.Millisecond && sent < 1<<20; {
		n, _ := a.try(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.seg(), RSeg: to.at(0, 8), Data: sent})
		sent += uint64(n)
		k := a.drain()
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
		c := b.ok(0)
		if c.Kind != fabric.OpRemoteWrite || c.Data >= sent || seen[c.Data] {
			r.Fatalf("got %+v of %d", c, sent)
		}
		seen[c.Data] = true
	}
	b.silent()
	for ; done < int(sent); done++ {
		a.ok(0)
	}
	for taken := 0; taken == 0; a.drain() {
		taken, _ = a.try(fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Seg: src.seg(), RSeg: to.at(0, 8), Data: 1 << 40})
	}
	if c := b.ok(0); c.Data != 1<<40 {
		r.Errorf("after the flood: %+v", c)
	}
}

// drain reads all successes that are there and returns how many.
func (n *node) drain() (count int) {
	n.Helper()
	var dst [64]fabric.Completion
	for {
		k, err := n.cq.Read(dst[:])
		if count += k; err != nil {
			if !errors.Is(err, fabric.ErrAgain) {
				n.Fatalf("read completions: %v", err)
			}
			return count
		}
	}
}

// hooked has nobody in Wait: the hook reads each entry when it is added.
func hooked(r *rig) {
	const count = 1000
	a, b := r.pair(shape{cqSize: 64})
	src, far := r.patterned(8, 1), r.alloc(8)
	to := a.imports(b.reg(far, bothRights).Raw())
	seenA, seenB := a.hook(), b.hook()
	for i := range count {
		b.submit(fabric.Op{Kind: fabric.OpRecv, Seg: far.seg()})
		at := to.at(0, 8)
		if !r.fatal() {
			at = to.at(uint64(i%2), 8) // every other one is out of range
		}
		a.submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: at}, fabric.Op{Kind: fabric.OpSend, Seg: src.seg()})
	}
	for _, c := range []struct {
		seen *atomic.Int64
		want int64
	}{{seenA, 2 * count}, {seenB, count}} {
		for c.seen.Load() < c.want && r.ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if n := c.seen.Load(); n != c.want {
			r.Errorf("%d of %d entries were seen", n, c.want)
		}
	}
	for _, n := range []*node{a, b} {
		n.cq.OnReady(nil)
		n.silent()
	}
	stillWorks(r, a, b)
}

// hook counts the entries of n as they come.
func (n *node) hook() *atomic.Int64 {
	var seen atomic.Int64
	n.cq.OnReady(func() {
		var dst [4]fabric.Completion
		for {
			k, err := n.cq.Read(dst[:])
			if errors.Is(err, fabric.ErrAvail) && n.cq.ReadErr(&fabric.ErrEntry{}) == nil {
				k = 1
			}
			if seen.Add(int64(k)); k == 0 && !errors.Is(err, fabric.ErrAvail) {
				return
			}
		}
	})
	return &seen
}

func readers(r *rig) {
	const count = 2000
	a, b := r.pair(shape{cqSize: 64})
	src, far := r.patterned(8, 1), r.alloc(8)
	to := a.imports(b.reg(far, bothRights).Raw())
	ctx, stop := context.WithCancel(r.ctx)
	defer stop()
	seen := make(chan uint64, count)
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				e, err := next(ctx, a.cq)
				if err != nil {
					return
				}
				seen <- e.Ctx
			}
		}()
	}
	for i := range uint64(count) {
		a.submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: to.at(0, 8), Ctx: i})
	}
	got := make(map[uint64]bool)
	for range count {
		select {
		case i := <-seen:
			if got[i] {
				r.Fatalf("entry %d was read twice", i)
			}
			got[i] = true
		case <-r.ctx.Done():
			r.Fatalf("%d of %d entries were read", len(got), count)
		}
	}
	stop()
	wg.Wait()
}
