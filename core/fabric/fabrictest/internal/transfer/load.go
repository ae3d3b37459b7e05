// SPDX-License-Identifier: MIT

package transfer

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
)

// LoadCases are the cases of many ops at once.
var LoadCases = []rig.Case{
	{Name: "many goroutines on one endpoint", Run: func(r *rig.Rig) {
		a, b := r.Pair(rig.Shape{CQSize: 64})
		together(r, 8, func(d *rig.Dispatcher, i int, to rig.Target) error { return roundTrips(r, d, to, i, 100, 4096) }, link{a, b})
	}},
	{Name: "both directions, all kinds", Run: bothWays},
	{Name: "a peer without receives blocks the sender", Run: func(r *rig.Rig) { noReceives(r, false) }},
	{Name: "two peers without receives block each other, and recover", Run: func(r *rig.Rig) { noReceives(r, true) }},
	{Name: "64 endpoints", Run: func(r *rig.Rig) {
		ha, hb := r.Host(), r.Host()
		var links []link
		for range 64 {
			a, b := ha.Node(rig.Shape{CQSize: 16}), hb.Node(rig.Shape{CQSize: 16})
			r.Join(a, b)
			links = append(links, link{a, b}, link{b, a})
		}
		for few := range slices.Chunk(links, dials) {
			together(r, 1, func(d *rig.Dispatcher, i int, to rig.Target) error { return roundTrips(r, d, to, i, 1, 64) }, few...)
		}
		together(r, 1, func(d *rig.Dispatcher, i int, to rig.Target) error { return roundTrips(r, d, to, i, 5, 1<<16) }, links...)
	}},
	{Name: "open and close leak nothing", Run: func(r *rig.Rig) {
		for range 20 {
			a, b := r.Pair(rig.Shape{})
			r.Must(errors.Join(a.EP.Close(), b.EP.Close()))
		}
	}},
}

// dials is how many connections are made at a time. All of them have the same few seconds for their
// handshakes, which take a while under TLS and the race detector.
const dials = 8

// slot is what one worker has of the region that together makes.
const slot = 1 << 17

// A link is a direction: from works on memory of to.
type link struct{ from, to *rig.Node }

// together runs the work workers times on each link, each with a slot of its own in a region of the
// peer.
func together(r *rig.Rig, workers int, work func(d *rig.Dispatcher, i int, to rig.Target) error, links ...link) {
	r.Helper()
	var wg sync.WaitGroup
	for _, l := range links {
		d := l.from.Dispatch()
		to := l.from.Imports(l.to.Reg(r.Alloc(workers*slot), rig.BothRights).Raw())
		for i := range workers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if err := work(d, i, rig.Target{Key: to.Key, Base: to.Base + uint64(i*slot)}); err != nil {
					r.Errorf("worker %d: %v", i, err)
				}
			}()
		}
	}
	wg.Wait()
}

// roundTrips writes a pattern of up to size bytes, reads it back, and compares.
func roundTrips(r *rig.Rig, d *rig.Dispatcher, to rig.Target, worker, rounds, size int) error {
	src, back := r.Alloc(size), r.Alloc(size)
	for round := range rounds {
		n := size - (round*37+worker)%(size/2)
		seed := uint64(worker*1000 + round)
		src.Fill(seed)
		if err := d.Run(fabric.Op{Kind: fabric.OpWrite, Seg: src.At(0, n).Seg(), RSeg: to.At(8, uint64(n))}); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := d.Run(fabric.Op{Kind: fabric.OpRead, Seg: back.At(0, n).Seg(), RSeg: to.At(8, uint64(n))}); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if i := rig.Differs(back.B[:n], seed, 0); i >= 0 {
			return fmt.Errorf("round %d: byte %d of %d came back changed", round, i, n)
		}
	}
	return nil
}

// bothWays has RMA and messages in both directions at once.
func bothWays(r *rig.Rig) {
	a, b := r.Pair(rig.Shape{CQSize: 256})
	const messages = 300
	together(r, 5, func(d *rig.Dispatcher, i int, to rig.Target) error {
		switch i {
		case 0:
			return sendMany(r, d, messages)
		case 1:
			return receiveMany(r, d, messages)
		}
		return roundTrips(r, d, to, i, 30, 100000)
	}, link{a, b}, link{b, a})
}

func sendMany(r *rig.Rig, d *rig.Dispatcher, count int) error {
	src := r.Patterned(9000, 1)
	for i := range count {
		err := d.Run(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Seg: src.At(0, 30*i).Seg(), Data: uint64(i)})
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

func receiveMany(r *rig.Rig, d *rig.Dispatcher, count int) error {
	dst := r.Alloc(9000)
	for i := range count {
		clear(dst.B)
		ch, err := d.Start(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg()})
		if err != nil {
			return err
		}
		select {
		case e := <-ch:
			if e.Err != 0 || e.Data != uint64(i) || e.Len != uint64(30*i) || rig.Differs(dst.B[:e.Len], 1, 0) >= 0 {
				return fmt.Errorf("received %+v as message %d", e, i)
			}
		case <-d.N.Ctx.Done():
			return fmt.Errorf("message %d: %w", i, d.N.Ctx.Err())
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
func noReceives(r *rig.Rig, both bool) {
	// Sends that wait for the peer must not take the places of our own receives.
	a, b := r.Pair(rig.Shape{CQSize: r.Info.Limits.TxSize + 64})
	src := r.Patterned(floodSize, 3)
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
		if n > floodMost+r.Info.Limits.TxSize {
			r.Fatalf("%d messages of %d bytes were taken for a peer that receives none", n, floodSize)
		}
	}
	errs := make(chan error, 2)
	go func() { errs <- drainFlood(a, r.Alloc(floodSize), sent[1]) }()
	go func() { errs <- drainFlood(b, r.Alloc(floodSize), sent[0]) }()
	r.Must(errors.Join(<-errs, <-errs))
	stillReceives(r, a, b)
}

// flood submits what is taken, up to a bound, and counts completions as progress, too.
func flood(n *rig.Node, src rig.Buffer, sent *int) (moved int) {
	for *sent <= floodMost+n.Info.Limits.TxSize {
		k, err := n.Try(fabric.Op{Kind: fabric.OpSend, Flags: fabric.OpRemoteData, Seg: src.Seg(), Data: uint64(*sent), Ctx: floodSend})
		*sent += k
		moved += k
		if err != nil {
			break
		}
	}
	return moved + rig.DrainQueue(n)
}

// drainFlood receives count messages, one at a time.
func drainFlood(n *rig.Node, dst rig.Buffer, count int) error {
	for i := range count {
		for {
			k, err := n.EP.Submit([]fabric.Op{{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: uint64(i)}})
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
		if e.Data != uint64(i) || e.Len != floodSize || rig.Differs(dst.B, 3, 0) >= 0 {
			return fmt.Errorf("received %+v as message %d", e, i)
		}
		clear(dst.B)
	}
	return nil
}

// nextOf reads results until one is of the op with this context.
func nextOf(n *rig.Node, ctx uint64) (fabric.ErrEntry, error) {
	for {
		e, err := rig.Next(n.Ctx, n.CQ)
		if err == nil && e.Err != 0 {
			err = &e
		}
		if err != nil || e.Ctx == ctx {
			return e, err
		}
	}
}

// stillReceives sends one more message each way, past completions of earlier sends.
func stillReceives(r *rig.Rig, a, b *rig.Node) {
	r.Helper()
	src, dst := r.Patterned(100, 9), r.Alloc(100)
	for _, l := range []link{{a, b}, {b, a}} {
		clear(dst.B)
		l.to.Submit(fabric.Op{Kind: fabric.OpRecv, Seg: dst.Seg(), Ctx: 5})
		l.from.Submit(fabric.Op{Kind: fabric.OpSend, Seg: src.Seg(), Ctx: 6})
		_, errTo := nextOf(l.to, 5)
		_, errFrom := nextOf(l.from, 6)
		r.Must(errors.Join(errTo, errFrom))
		r.Has(dst, 9, 0)
	}
}
