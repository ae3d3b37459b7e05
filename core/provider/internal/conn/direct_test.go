// SPDX-License-Identifier: MIT

package conn

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
)

// A testPath takes every op and ends it as its test specifies.
type testPath struct {
	ep  Port
	rma func(*testPath, Ticket, *fabric.Op) bool

	mu      sync.Mutex
	open    map[Ticket]bool
	frames  []string
	stopped error
	changed chan struct{}
}

func (d *testPath) RMA(t Ticket, op *fabric.Op, _ fabric.RegionKey) bool { return d.rma(d, t, op) }

func (d *testPath) Frame(kind uint8, body []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if kind == 255 {
		return fmt.Errorf("frame of the last kind: %w", fabric.ErrProtocol)
	}
	d.frames = append(d.frames, fmt.Sprint(kind, string(body)))
	d.changed <- struct{}{}
	return nil
}

func (d *testPath) Close(cause error) {
	d.mu.Lock()
	d.stopped = cause
	open := d.open
	d.open = nil
	d.mu.Unlock()
	for t := range open {
		d.ep.Finish(t, fmt.Errorf("stopped: %w", fabric.ErrConnReset))
	}
}

func (d *testPath) Describe() (name, reason string) { return "fake", "a test" }

// hold keeps an op until Stop.
func hold(d *testPath, t Ticket, _ *fabric.Op) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[t] = true
	return true
}

// directPair connects two rigs whose endpoints have a DataPath with the given behaviour.
func directPair(t *testing.T, rma func(*testPath, Ticket, *fabric.Op) bool) (a, b *rig, da, db *testPath) {
	t.Helper()
	attach := func(d **testPath) func(Port, any) (DataPath, error) {
		return func(ep Port, _ any) (DataPath, error) {
			*d = &testPath{ep: ep, rma: rma, open: map[Ticket]bool{}, changed: make(chan struct{}, 1000)}
			return *d, nil
		}
	}
	a, b = newRig(t, attach(&da)), newRig(t, attach(&db))
	join(a, b)
	return a, b, da, db
}

func (r *rig) submitTo(key uint64, kind fabric.OpKind, flags fabric.OpFlags, data uint64) {
	r.Helper()
	_, err := r.ep.Submit([]fabric.Op{{Kind: kind, Flags: flags, RSeg: fabric.RSeg{Key: key}, Data: data, Ctx: data}})
	r.must(err)
}

// next returns the next completion, or the error entry as an error.
func (r *rig) next() (fabric.Completion, error) {
	r.Helper()
	var done [1]fabric.Completion
	_, err := r.cq.Wait(r.ctx, done[:])
	if errors.Is(err, fabric.ErrAvail) {
		var e fabric.ErrEntry
		r.must(r.cq.ReadErr(&e))
		return e.Completion, &e
	}
	r.must(err)
	return done[0], nil
}

func importAny(r *rig) uint64 {
	r.Helper()
	return r.imported(fabric.RegionKey{ID: 4}, 8)
}

func TestDirectEndsOps(t *testing.T) {
	a, b, _, _ := directPair(t, func(d *testPath, k Ticket, op *fabric.Op) bool {
		switch {
		case op.Data == 1:
			d.ep.Finish(k, nil)
		case op.Data == 2:
			d.ep.Finish(k, fmt.Errorf("the test's own words: %w", fabric.ErrRange))
		case op.Data == 3:
			go d.ep.Forward(k)
		case op.Data == 5:
			go d.ep.HandBack(k)
		default:
			return false // use the stream; the target does not know this region
		}
		return true
	})
	key := importAny(a)
	a.submitTo(key, fabric.OpWrite, 0, 1)
	if c, err := a.next(); err != nil || c.Ctx != 1 {
		t.Errorf("finished: %+v, %v", c, err)
	}
	a.submitTo(key, fabric.OpRead, 0, 2)
	if c, err := a.next(); !errors.Is(err, fabric.ErrRange) || c.Ctx != 2 {
		t.Errorf("failed: %+v, %v", c, err)
	}
	_, shared := b.share(8) // the target checks the key of forwarded remote data
	a.submitTo(a.imported(shared, 8), fabric.OpWrite, fabric.OpRemoteData, 3)
	if c, err := b.next(); err != nil || c.Kind != fabric.OpRemoteWrite || c.Data != 3 {
		t.Errorf("forwarded: %+v, %v", c, err)
	}
	if c, err := a.next(); err != nil || c.Ctx != 3 {
		t.Errorf("forwarded: %+v, %v", c, err)
	}
	a.submitTo(key, fabric.OpWrite, 0, 5)
	if _, err := a.next(); !errors.Is(err, fabric.ErrNoKey) { // the target's answer on the stream
		t.Errorf("handed back: %v", err)
	}
	a.submitTo(key, fabric.OpWrite, 0, 4)
	if _, err := a.next(); !errors.Is(err, fabric.ErrNoKey) {
		t.Errorf("declined: %v", err)
	}
	if name, reason := a.ep.Path(); name != "fake" || reason != "a test" {
		t.Errorf("path %q, %q", name, reason)
	}
}

// TestAnOpBehindAFenceIsReportedLater checks that the op behind the fence has not started when the
// first op is reported. Otherwise it could end and be reported first.
func TestAnOpBehindAFenceIsReportedLater(t *testing.T) {
	a, _, da, _ := directPair(t, hold)
	key := importAny(a)
	a.submitTo(key, fabric.OpWrite, 0, 1)
	a.submitTo(key, fabric.OpWrite, fabric.OpFence, 2)
	behind := make(chan int, 4)
	a.cq.OnReady(func() {
		da.ep.ep.out.mu.Lock()
		defer da.ep.ep.out.mu.Unlock()
		behind <- da.ep.ep.out.fences.held.Len()
	})
	da.mu.Lock()
	var first Ticket
	for first = range da.open {
		delete(da.open, first)
	}
	da.mu.Unlock()
	da.ep.Finish(first, nil)
	if n := <-behind; n != 1 {
		t.Errorf("%d ops wait behind the fence while the op before it is reported", n)
	}
	a.cq.OnReady(nil)
	if c, err := a.next(); err != nil || c.Ctx != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestFencesHoldForADirect(t *testing.T) {
	var order []uint64
	a, _, da, _ := directPair(t, func(d *testPath, k Ticket, op *fabric.Op) bool {
		d.mu.Lock()
		order = append(order, op.Data)
		d.mu.Unlock()
		if op.Data == 1 {
			return hold(d, k, op)
		}
		d.ep.Finish(k, nil)
		return true
	})
	key := importAny(a)
	a.submitTo(key, fabric.OpWrite, 0, 1)
	a.submitTo(key, fabric.OpWrite, fabric.OpFence, 2)
	a.submitTo(key, fabric.OpRead, 0, 3)
	da.mu.Lock()
	if len(order) != 1 {
		t.Errorf("begun: %v", order)
	}
	var k Ticket
	for k = range da.open {
	}
	delete(da.open, k)
	da.mu.Unlock()
	da.ep.Finish(k, nil)
	for want := uint64(1); want <= 3; want++ {
		if c, err := a.next(); err != nil || c.Ctx != want {
			t.Errorf("completion %+v, %v", c, err)
		}
	}
}

func TestExtensionFramesComeInOrder(t *testing.T) {
	a, b, da, db := directPair(t, hold)
	for i := range 100 {
		a.must(da.ep.SendFrame(uint8(i), []byte("ping")))
	}
	for range 100 {
		<-db.changed
	}
	for i, f := range db.frames {
		if f != fmt.Sprint(i, "ping") {
			t.Fatalf("frame %d is %q", i, f)
		}
	}
	if err := da.ep.SendFrame(1, make([]byte, frame.MaxExtension+1)); !errors.Is(err, fabric.ErrMsgSize) {
		t.Errorf("too long a frame: %v", err)
	}
	b.must(db.ep.SendFrame(255, nil)) // a's DataPath refuses it
	if e := a.event(fabric.EventShutdown); !errors.Is(e.Err, fabric.ErrProtocol) {
		t.Errorf("connection ended by %v", e.Err)
	}
	if err := da.ep.SendFrame(1, nil); !errors.Is(err, fabric.ErrNotConn) {
		t.Errorf("frame after the end: %v", err)
	}
}

func TestStopComesBeforeTheEnd(t *testing.T) {
	a, b, da, db := directPair(t, hold)
	key := importAny(a)
	for i := range uint64(20) {
		a.submitTo(key, fabric.OpWrite, 0, i)
	}
	a.must(a.ep.Shutdown())
	if !errors.Is(da.stopped, fabric.ErrConnAborted) {
		t.Errorf("stopped by %v", da.stopped)
	}
	for range 20 {
		if _, err := a.next(); !errors.Is(err, fabric.ErrConnReset) {
			t.Errorf("op ended by %v", err)
		}
	}
	if e := b.event(fabric.EventShutdown); !errors.Is(e.Err, fabric.ErrShutdown) || !errors.Is(db.stopped, fabric.ErrShutdown) {
		t.Errorf("peer: event %v, stopped by %v", e.Err, db.stopped)
	}
}
