// SPDX-License-Identifier: MIT

package fabrictest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"mori/core/fabric"
)

var loadCases = []testCase{
	{"many goroutines on one endpoint", func(r *rig) {
		a, b := r.pair(shape{cqSize: 64})
		r.together(8, func(d *dispatcher, i int, to target) error { return roundTrips(r, d, to, i, 100, 4096) }, link{a, b})
	}},
	{"both directions, all kinds", bothWays},
	{"a peer without receives blocks the sender", func(r *rig) { noReceives(r, false) }},
	{"two peers without receives block each other, and recover", func(r *rig) { noReceives(r, true) }},
	{"64 endpoints", func(r *rig) {
		ha, hb := r.host(), r.host()
		var links []link
		for range 64 {
			a, b := ha.node(shape{cqSize: 16}), hb.node(shape{cqSize: 16})
			r.join(a, b)
			links = append(links, link{a, b}, link{b, a})
		}
		for few := range slices.Chunk(links, dials) {
			r.together(1, func(d *dispatcher, i int, to target) error { return roundTrips(r, d, to, i, 1, 64) }, few...)
		}
		r.together(1, func(d *dispatcher, i int, to target) error { return roundTrips(r, d, to, i, 5, 1<<16) }, links...)
	}},
	{"open and close leak nothing", func(r *rig) {
		for range 20 {
			a, b := r.pair(shape{})
			r.must(errors.Join(a.ep.Close(), b.ep.Close()))
		}
	}},
}

// dials is how many connections are made at a time. All of them have the same few seconds for their
// handshakes, which take a while under TLS and the race detector.
const dials = 8

// slot is what one worker has of the region that together makes.
const slot = 1 << 17

// A link is a direction: from works on memory of to.
type link struct{ from, to *node }

// together runs the work workers times on each link, each with a slot of its own in a region of the
// peer.
func (r *rig) together(workers int, work func(d *dispatcher, i int, to target) error, links ...link) {
	r.Helper()
	var wg sync.WaitGroup
	for _, l := range links {
		d := l.from.dispatch()
		to := l.from.imports(l.to.reg(r.alloc(workers*slot), bothRights).Raw())
		for i := range workers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if err := work(d, i, target{to.key, to.base + uint64(i*slot)}); err != nil {
					r.Errorf("worker %d: %v", i, err)
				}
			}()
		}
	}
	wg.Wait()
}

// roundTrips writes a pattern of up to size bytes, reads it back, and compares.
func roundTrips(r *rig, d *dispatcher, to target, worker, rounds, size int) error {
	src, back := r.alloc(size), r.alloc(size)
	for round := range rounds {
		n := size - (round*37+worker)%(size/2)
		seed := uint64(worker*1000 + round)
		src.fill(seed)
		if err := d.run(fabric.Op{Kind: fabric.OpWrite, Seg: src.at(0, n).seg(), RSeg: to.at(8, uint64(n))}); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := d.run(fabric.Op{Kind: fabric.OpRead, Seg: back.at(0, n).seg(), RSeg: to.at(8, uint64(n))}); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if i := differs(back.b[:n], seed, 0); i >= 0 {
			return fmt.Errorf("round %d: byte %d of %d came back changed", round, i, n)
		}
	}
	return nil
}

// bothWays has RMA and messages in both directions at once.
func bothWays(r *rig) {
	a, b := r.pair(shape{cqSize: 256})
	const messages = 300
	r.together(5, func(d *dispatcher, i int, to target) error {
		switch i {
		case 0:
			return sendMany(r, d, messages)
		case 1:
			return receiveMany(r, d, messages)
		}
		return roundTrips(r, d, to, i, 30, 100000)
	}, link{a, b}, link{b, a})
}

func sendMany(r *rig, d *dispatcher, count int) error {
	src := r.patterned(9000, 1)
	for i := range count {
		err := d.run(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Seg: src.at(0, 30*i).seg(), Data: uint64(i)})
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

func receiveMany(r *rig, d *dispatcher, count int) error {
	dst := r.alloc(9000)
	for i := range count {
		clear(dst.b)
		ch, err := d.start(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg()})
		if err != nil {
			return err
		}
		select {
		case e := <-ch:
			if e.Err != 0 || e.Data != uint64(i) || e.Len != uint64(30*i) || differs(dst.b[:e.Len], 1, 0) >= 0 {
				return fmt.Errorf("received %+v as message %d", e, i)
			}
		case <-d.n.ctx.Done():
			return fmt.Errorf("message %d: %w", i, d.n.ctx.Err())
		}
	}
	return nil
}

const (
	floodSize = 32 << 10
	floodMost = 64 << 20 / floodSize // a provider that keeps more for nobody has no bound
	floodSend = 1 << 40              // context of sends
)

// noReceives sends until nothing moves any more, and then receives everything.
func noReceives(r *rig, both bool) {
	// Sends that wait for the peer must not take the places of our own receives.
	a, b := r.pair(shape{cqSize: r.info.Limits.TxSize + 64})
	src := r.patterned(floodSize, 3)
	var sent [2]int
	for still := time.Now(); time.Since(still) < 150*time.Millisecond; {
		moved := flood(a, src, &sent[0])
		if both {
			moved += flood(b, src, &sent[1])
		}
		if moved > 0 {
			still = time.Now()
		} else {
			time.Sleep(200 * time.Microsecond)
		}
	}
	for _, n := range sent {
		if n > floodMost+r.info.Limits.TxSize {
			r.Fatalf("%d messages of %d bytes were taken for a peer that receives none", n, floodSize)
		}
	}
	errs := make(chan error, 2)
	go func() { errs <- drainFlood(a, r.alloc(floodSize), sent[1]) }()
	go func() { errs <- drainFlood(b, r.alloc(floodSize), sent[0]) }()
	r.must(errors.Join(<-errs, <-errs))
	stillReceives(r, a, b)
}

// flood submits what is taken, up to a bound, and counts completions as progress, too.
func flood(n *node, src memory, sent *int) (moved int) {
	for *sent <= floodMost+n.info.Limits.TxSize {
		k, err := n.try(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Seg: src.seg(), Data: uint64(*sent), Ctx: floodSend})
		*sent += k
		moved += k
		if err != nil {
			break
		}
	}
	return moved + n.drain()
}

// drainFlood receives count messages, one at a time.
func drainFlood(n *node, dst memory, count int) error {
	for i := range count {
		for {
			k, err := n.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: uint64(i)}})
			if k == 1 {
				break
			}
			if !errors.Is(err, fabric.ErrAgain) {
				return fmt.Errorf("receive %d of %d: %w", i, count, err)
			}
			if _, err := nextOf(n, floodSend); err != nil {
				return err
			}
		}
		e, err := nextOf(n, uint64(i))
		if err != nil {
			return fmt.Errorf("receive %d of %d: %w", i, count, err)
		}
		if e.Data != uint64(i) || e.Len != floodSize || differs(dst.b, 3, 0) >= 0 {
			return fmt.Errorf("received %+v as message %d", e, i)
		}
		clear(dst.b)
	}
	return nil
}

// nextOf reads results until one is of the op with this context.
func nextOf(n *node, ctx uint64) (fabric.ErrEntry, error) {
	for {
		e, err := next(n.ctx, n.cq)
		if err == nil && e.Err != 0 {
			err = &e
		}
		if err != nil || e.Ctx == ctx {
			return e, err
		}
	}
}

// stillReceives sends one more message each way, past completions of earlier sends.
func stillReceives(r *rig, a, b *node) {
	r.Helper()
	src, dst := r.patterned(100, 9), r.alloc(100)
	for _, l := range []link{{a, b}, {b, a}} {
		clear(dst.b)
		l.to.submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.seg(), Ctx: 5})
		l.from.submit(fabric.Op{Kind: fabric.OpSend, Seg: src.seg(), Ctx: 6})
		_, errTo := nextOf(l.to, 5)
		_, errFrom := nextOf(l.from, 6)
		r.must(errors.Join(errTo, errFrom))
		r.has(dst, 9, 0)
	}
}
