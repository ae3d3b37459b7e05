// SPDX-License-Identifier: MIT

package staging

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/native/gpu/gputest"
)

const deadline = 30 * time.Second

func ok(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// A region is registered memory of a device.
type region struct {
	dev   *device.Device
	addr  uint64
	table *regions.Table
	mr    *regions.MR
	key   fabric.RegionKey
}

func newRegion(t *testing.T, ordinal, n int) *region {
	t.Helper()
	all, err := device.Devices()
	ok(t, err)
	dev := all[ordinal%len(all)]
	mem, err := dev.Alloc(uint64(n))
	ok(t, err)
	kind := map[device.Vendor]fabric.MemKind{device.CUDA: fabric.MemCUDA, device.HIP: fabric.MemHIP}[dev.Vendor]
	r := &region{dev: dev, addr: mem.Addr(), table: regions.NewTable(), key: fabric.RegionKey{ID: 7, Secret: [16]byte{byte(ordinal)}}}
	r.table.TakeDevice()
	buf := fabric.Buffer{Addr: r.addr, Len: uint64(n), Kind: kind, Device: dev.Ordinal}
	r.mr, err = r.table.Register(buf, fabric.AccessRemoteRead|fabric.AccessRemoteWrite, r.key)
	ok(t, err)
	t.Cleanup(func() { ok(t, errors.Join(r.mr.Close(), mem.Close())) })
	return r
}

// exchange copies b to the region, or the region to b.
func (r *region) exchange(t *testing.T, b []byte, out bool) {
	t.Helper()
	h, err := r.dev.AllocHost(uint64(len(b)))
	ok(t, err)
	st, err := r.dev.NewStream(device.Normal)
	ok(t, err)
	to, from := r.addr, h.Addr()
	if out {
		to, from = from, to
	} else {
		copy(sys.Bytes(h.Addr(), len(b)), b)
	}
	ok(t, errors.Join(st.Copy(to, from, uint64(len(b))), st.Wait(context.Background())))
	if out {
		copy(b, sys.Bytes(h.Addr(), len(b)))
	}
	ok(t, errors.Join(st.Close(), h.Close()))
}

// A loop is a Port without a socket. A piece that one Stager sends arrives immediately at the
// other.
type loop struct {
	t         *testing.T
	near, far Stager
	devices   Devices
	target    *region
	ended     chan *Transfer

	mu      sync.Mutex
	pending int // pending pieces
	most    int // most pieces pending at a time
	longest uint64
}

func newLoop(t *testing.T, local *regions.Table, target *region) *loop {
	l := &loop{t: t, target: target, ended: make(chan *Transfer, 1)}
	l.near.Init(l, local)
	l.far.Init(l, target.table)
	t.Cleanup(func() {
		l.near.Stop()
		l.far.Stop()
		ok(t, l.devices.Close())
	})
	return l
}

func (l *loop) Reserve(p *Piece) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending == MaxPieces {
		return false
	}
	l.pending++
	l.most, l.longest = max(l.most, l.pending), max(l.longest, p.Len())
	return true
}

func (l *loop) Cancel(*Piece)            { l.release() }
func (l *loop) Ended(x *Transfer)        { l.ended <- x }
func (l *loop) Log(what string, e error) { l.t.Logf("%s: %v", what, e) }

func (l *loop) release() {
	l.mu.Lock()
	l.pending--
	l.mu.Unlock()
}

// Send acts as the wire and the peer.
func (l *loop) Send(p *Piece) {
	mr, err := l.target.table.Acquire(l.target.key, 0)
	if err != nil {
		l.t.Error(err)
		return
	}
	var iov []sys.Iovec
	for i := range 1 + len(p.Op.RMore) {
		g := p.Op.RemoteSeg(i)
		addr, err := mr.Range(g.Addr, g.Len)
		if err != nil {
			l.t.Error(err)
		}
		iov = append(iov, sys.Iovec{Addr: addr, Len: g.Len})
	}
	if p.Op.Kind == fabric.OpRead {
		if err := l.far.Read(&reading{l, p, mr}, mr, iov, p.Len(), &l.devices); err != nil {
			l.t.Error(err)
		}
		return
	}
	arriving, err := l.far.BeginWrite(mr, iov, p.Len(), &l.devices)
	for end := time.Now().Add(deadline); errors.Is(err, device.ErrBusy) && time.Now().Before(end); {
		time.Sleep(LastPause)
		arriving, err = l.far.BeginWrite(mr, iov, p.Len(), &l.devices)
	}
	if err != nil {
		l.t.Error(err)
		return
	}
	if err := sys.Move(arriving.Addr(), p.Op.Seg.Addr, p.Len()); err != nil {
		l.t.Error(err)
	}
	l.far.EndWrite(arriving, &writing{l: l, p: p}, &frame.Header{})
}

// A reading is the peer's side of one piece of a read.
type reading struct {
	l  *loop
	p  *Piece
	mr *regions.MR
}

func (r *reading) Reply(b Buffer, errno fabric.Errno) {
	if errno == 0 {
		if took, err := r.p.Receive(r.p.Len()); !took || err != nil {
			r.l.t.Errorf("a piece of a read takes no buffer: %v", err)
			return
		}
		from := b.Iovec()
		if err := sys.Move(r.p.Addr(), from.Addr, from.Len); err != nil {
			r.l.t.Error(err)
		}
		b.Free()
	}
	r.mr.Release()
	r.l.release()
	r.l.near.Answered(r.p, errno, "")
}

func (r *reading) Drop() { r.mr.Release() }

// A writing is the peer's side of one piece of a write. At first it has no room for its completion.
type writing struct {
	l     *loop
	p     *Piece
	asked int
}

func (w *writing) Landed(_ *frame.Header, errno fabric.Errno) bool {
	if w.asked++; w.asked == 1 {
		return false
	}
	w.l.release()
	w.l.near.Answered(w.p, errno, "")
	return true
}

// run moves the transfer and returns how it ended.
func (l *loop) run(x *Transfer) (fabric.Errno, string) {
	l.t.Helper()
	l.near.Start(x, "peer")
	select {
	case got := <-l.ended:
		if got != x {
			l.t.Fatal("another transfer ended")
		}
	case <-time.After(deadline):
		l.t.Fatal("the transfer does not end")
	}
	return x.Errno, x.Detail
}

// TestTransfersInPieces writes device memory to another device and reads it back, through two
// Stagers without a socket between them.
func TestTransfersInPieces(t *testing.T) {
	gputest.Need(t)
	const n = 5<<20 + 123
	near, far := newRegion(t, 0, n), newRegion(t, 1, n)
	l := newLoop(t, near.table, far)
	on, err := l.devices.Of(near.mr.Buffer())
	ok(t, err)
	want, got := make([]byte, n), make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(want)
	near.exchange(t, want, false)
	half := fabric.Seg{Addr: near.addr, Len: n / 2, MR: near.mr.Desc()}
	rest := fabric.Seg{Addr: near.addr + n/2, Len: n - n/2, MR: near.mr.Desc()}
	for _, kind := range []fabric.OpKind{fabric.OpWrite, fabric.OpRead} {
		op := fabric.Op{Kind: kind, Seg: half, More: []fabric.Seg{rest}, RSeg: fabric.RSeg{Len: n}}
		if errno, detail := l.run(&Transfer{Op: &op, Len: n, Device: on, RegionLen: n}); errno != 0 {
			t.Fatalf("%v: %v, %s", kind, errno, detail)
		}
		side := far
		if kind == fabric.OpRead {
			side = near
		}
		if side.exchange(t, got, true); !bytes.Equal(got, want) {
			t.Fatalf("%v: the bytes differ", kind)
		}
		near.exchange(t, make([]byte, n), false) // so that the read changes something
	}
	if l.longest != PieceLen || l.most < 2 {
		t.Errorf("pieces of up to %d bytes, up to %d at a time; want %d, and several", l.longest, l.most, PieceLen)
	}
	if copies, replied := l.far.Stats(); copies != 0 || replied != 0 {
		t.Errorf("%d copies and %d bytes of replies are left", copies, replied)
	}
}

// TestTransfersOutsideTheRegion checks that such transfers are refused before the first piece.
func TestTransfersOutsideTheRegion(t *testing.T) {
	gputest.Need(t)
	near, far := newRegion(t, 0, 4096), newRegion(t, 1, 4096)
	l := newLoop(t, near.table, far)
	op := fabric.Op{Kind: fabric.OpWrite, Seg: fabric.Seg{Addr: near.addr, Len: 100, MR: near.mr.Desc()}, RSeg: fabric.RSeg{Addr: 4000, Len: 100}}
	if errno, _ := l.run(&Transfer{Op: &op, Len: 100, RegionLen: 4096}); errno != fabric.ErrRange || l.most != 0 {
		t.Errorf("%v after %d pieces, want %v and none", errno, l.most, fabric.ErrRange)
	}
}
