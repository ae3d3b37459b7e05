// SPDX-License-Identifier: MIT

package conn

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
)

// spin polls the queue until it has an entry.
func (r *rig) spin() fabric.Completion {
	r.Helper()
	var done [1]fabric.Completion
	for r.ctx.Err() == nil {
		switch _, err := r.cq.Read(done[:]); {
		case err == nil:
			return done[0]
		case !errors.Is(err, fabric.ErrAgain):
			r.Fatal(err)
		}
	}
	r.Fatal("nothing came")
	return done[0]
}

// lendOut sends messages to r, which polls, until r's poller reads its link itself.
func lendOut(r, from *rig) {
	r.Helper()
	for r.ctx.Err() == nil {
		_, err := r.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv}})
		r.must(err)
		_, err = from.ep.Submit([]fabric.Op{{Kind: fabric.OpSend}})
		from.must(err)
		r.spin()
		_, err = from.next()
		from.must(err)
		if r.ep.channels.sockets[0].Lent() {
			return
		}
	}
	r.Fatal("the link is not lent")
}

func polledPair(t *testing.T) (a, b *rig) {
	t.Helper()
	a, b = newRig(t, nil), newRig(t, nil)
	join(a, b)
	lendOut(b, a)
	return a, b
}

// TestALentLinkIsTakenBackWhenNobodyLooks stops polling. Messages that arrive after that are still
// received and answered.
func TestALentLinkIsTakenBackWhenNobodyLooks(t *testing.T) {
	a, b := polledPair(t)
	_, err := b.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv, Ctx: 5}})
	b.must(err)
	_, err = a.ep.Submit([]fabric.Op{{Kind: fabric.OpSend, Ctx: 6}})
	a.must(err)
	if c, err := a.next(); err != nil || c.Ctx != 6 {
		t.Fatalf("%+v, %v", c, err)
	}
	for b.ep.channels.sockets[0].Lent() && b.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if c, err := b.next(); err != nil || c.Ctx != 5 {
		t.Fatalf("%+v, %v", c, err)
	}
}

// TestALentLinkIsTakenBackByWhoParks parks in Wait, and then sets a hook.
func TestALentLinkIsTakenBackByWhoParks(t *testing.T) {
	a, b := polledPair(t)
	woken := make(chan error, 1)
	go func() {
		_, err := b.cq.Wait(b.ctx, make([]fabric.Completion, 1))
		woken <- err
	}()
	_, err := b.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv}})
	b.must(err)
	_, err = a.ep.Submit([]fabric.Op{{Kind: fabric.OpSend}})
	a.must(err)
	b.must(<-woken)
	_, err = a.next()
	a.must(err)

	lendOut(b, a)
	var hooked atomic.Int32
	b.cq.OnReady(func() {
		var done [1]fabric.Completion
		if n, _ := b.cq.Read(done[:]); n > 0 {
			hooked.Add(1)
		}
	})
	recvs := make([]fabric.Op, 50)
	sends := make([]fabric.Op, 50)
	for i := range recvs {
		recvs[i].Kind, sends[i].Kind = fabric.OpRecv, fabric.OpSend
	}
	_, err = b.ep.Submit(recvs)
	b.must(err)
	_, err = a.ep.Submit(sends)
	a.must(err)
	for range sends {
		_, err = a.next()
		a.must(err)
	}
	for hooked.Load() < 50 && b.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	b.cq.OnReady(nil)
}

// TestALentLinkEndsLikeOthers ends the connection from each side, with messages in transit.
func TestALentLinkEndsLikeOthers(t *testing.T) {
	for name, end := range map[string]func(a, b *rig){
		"this side shuts down": func(_, b *rig) { b.must(b.ep.Shutdown()) },
		"this side closes":     func(_, b *rig) { b.must(b.ep.Close()) },
		"the peer shuts down":  func(a, _ *rig) { a.must(a.ep.Shutdown()) },
		"the peer breaks":      func(a, _ *rig) { a.ep.fail(fabric.ErrTimeout) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := polledPair(t)
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() { // keep polling
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = b.cq.Read(nil)
					}
				}
			}()
			_, seg := b.memory(32 << 20)
			_, err := b.ep.Submit([]fabric.Op{{Kind: fabric.OpSend, Seg: seg, Ctx: 9}, {Kind: fabric.OpRecv}})
			b.must(err)
			end(a, b)
			b.event(fabric.EventShutdown)
			a.event(fabric.EventShutdown)
			close(stop)
			<-stopped
			for range 2 {
				if _, err := b.next(); err == nil {
					t.Error("an op without a peer ended well")
				}
			}
		})
	}
}

// TestPollersAndGoroutinesTakeTurns moves all kinds of ops in both directions. Both sides alternate
// between polling, parking and doing neither.
func TestPollersAndGoroutinesTakeTurns(t *testing.T) {
	a, b := newRig(t, nil), newRig(t, nil)
	join(a, b)
	const rounds = 100
	sizes := []int{0, 8, 5000, frame.MaxEager, 3 << 20}
	failed := make(chan error, 2)
	play := func(r *rig, far []byte, key uint64, seed byte) error {
		_, in := r.memory(3 << 20)
		out, outSeg := r.memory(3 << 20)
		done := make([]fabric.Completion, 4)
		for i := range rounds {
			n := sizes[i%len(sizes)]
			for k := range out[:n] {
				out[k] = seed + byte(i+k)
			}
			outSeg.Len = uint64(n)
			ops := []fabric.Op{{Kind: fabric.OpRecv, Seg: in, Ctx: 1}, {Kind: fabric.OpSend, Seg: outSeg, Ctx: 2},
				{Kind: fabric.OpWrite, Seg: outSeg, RSeg: fabric.RSeg{Len: uint64(n), Key: key}, Ctx: 3}}
			if _, err := r.ep.Submit(ops); err != nil {
				return err
			}
			for left := len(ops); left > 0; {
				k, err := r.cq.Read(done)
				if err == fabric.ErrAgain && i%20 > 15 {
					k, err = r.cq.Wait(r.ctx, done)
				}
				if err != nil && err != fabric.ErrAgain {
					return err
				}
				left -= k
				for _, c := range done[:k] {
					if c.Ctx == 3 && !bytes.Equal(far[:n], out[:n]) {
						return errors.New("written bytes differ")
					}
				}
			}
			if i%50 == 49 {
				time.Sleep(2 * time.Millisecond) // longer than a program keeps a stream without polling
			}
		}
		return nil
	}
	amem, akey := a.share(3 << 20)
	bmem, bkey := b.share(3 << 20)
	toA, toB := b.imported(akey, 3<<20), a.imported(bkey, 3<<20)
	go func() { failed <- play(a, bmem, toB, 1) }()
	go func() { failed <- play(b, amem, toA, 77) }()
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
			a.ep.fail(err)
		}
	}
}

// A watchedPoller reports when a reader of its queue parks.
type watchedPoller struct {
	*socket.Poller
	parked chan struct{}
}

func (w *watchedPoller) Arm(parking bool) {
	w.Poller.Arm(parking)
	if parking {
		select {
		case w.parked <- struct{}{}:
		default:
		}
	}
}

// TestNoLinkIsLentWhileAReaderIsParked has one reader poll and another wait: the waiting one must
// not be delayed.
func TestNoLinkIsLentWhileAReaderIsParked(t *testing.T) {
	a, b := polledPair(t)
	parked := make(chan error, 1)
	cq, err := b.dom.CQ(1)
	b.must(err)
	defer func() { b.must(cq.Close()) }()
	source := &watchedPoller{b.ep.poller, make(chan struct{}, 1)}
	cq.(*util.CQ).AddSource(source)
	defer cq.(*util.CQ).RemoveSource(source)
	go func() {
		_, err := cq.Wait(b.ctx, make([]fabric.Completion, 1))
		parked <- err
	}()
	select {
	case <-source.parked:
	case <-b.ctx.Done():
		t.Fatal("the reader does not park")
	}
	for range 200 {
		_, err := b.ep.Submit([]fabric.Op{{Kind: fabric.OpRecv}})
		b.must(err)
		_, err = a.ep.Submit([]fabric.Op{{Kind: fabric.OpSend}})
		a.must(err)
		b.spin()
		_, err = a.next()
		a.must(err)
	}
	if b.ep.channels.sockets[0].Lent() {
		t.Error("the link is lent")
	}
	b.must(cq.Signal())
	b.must(<-parked)
	lendOut(b, a)
}
