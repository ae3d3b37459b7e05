// SPDX-License-Identifier: MIT

package p2p

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/endtest"
	"mori/native/gpu/gputest"
)

const testDeadline = 2 * time.Minute

const allRights = fabric.AccessRemoteRead | fabric.AccessRemoteWrite

// An end is a host of its own as far as the provider can see, with one endpoint.
type end struct {
	fab fabric.Fabric
	dom fabric.Domain
	cq  fabric.CQ
	eq  fabric.EQ
	ep  fabric.Endpoint
	ctx context.Context

	closed endtest.Stack
}

// openEnd makes an enabled endpoint. close undoes it.
func openEnd(ctx context.Context, opts Options) (e *end, err error) {
	opts.Log = quiet
	p := New(opts)
	infos, err := p.GetInfo(ctx, "", "", &fabric.Info{Caps: fabric.CapMSG | fabric.CapRMA | fabric.CapHMEM, MRMode: fabric.MRHMEM})
	if err != nil {
		return nil, err
	}
	e = &end{ctx: ctx}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.fab, err = p.Open(ctx, infos[0]); err != nil {
		return nil, err
	}
	e.closed = append(e.closed, e.fab.Close)
	o, err := endtest.Open(ctx, e.fab, nil, 1024, &e.closed)
	e.dom, e.cq, e.eq, e.ep = o.Dom, o.CQ, o.EQ, o.EP
	return e, err
}

// close closes all in reverse order.
func (e *end) close() error { return e.closed.Close() }

func (e *end) connector() fabric.Connector { return e.ep.(fabric.Connector) }

// newEnd is openEnd for a test.
func newEnd(tb testing.TB, opts Options) *end {
	tb.Helper()
	gputest.Need(tb)
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	tb.Cleanup(cancel)
	e, err := openEnd(ctx, opts)
	ok(tb, err)
	tb.Cleanup(func() { ok(tb, e.close()) })
	return e
}

// newPair makes two connected ends.
func newPair(tb testing.TB, opts Options) (a, b *end) {
	tb.Helper()
	a, b = newEnd(tb, opts), newEnd(tb, opts)
	ok(tb, connect(a, b))
	return a, b
}

func connect(a, b *end) error { return endtest.Connect(a.ctx, a.ep, b.fab, b.ep) }

func (e *end) acceptAt(l fabric.Listener) error { return endtest.Accept(e.ctx, l, e.ep) }

func ok(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// A registered buffer, of a device or of the host.
type registered struct {
	fabric.Buffer
	mr   fabric.MR
	free func() error
	dev  *device.Device // nil of host memory
}

var regionIDs atomic.Uint64

// openMemory allocates n bytes on device dev, or of the host if it is -1, and registers the n bytes
// behind skip of them.
func (e *end) openMemory(dev int, skip, n uint64) (*registered, error) {
	m := &registered{}
	all, err := device.Devices()
	if err != nil {
		return nil, err
	}
	if dev < 0 {
		b, err := sys.Alloc(int(skip + n))
		if err != nil {
			return nil, err
		}
		m.Buffer, m.free = fabric.Buffer{Addr: sys.AddrOf(b)}, func() error { return sys.Free(b) }
	} else {
		m.dev = all[dev]
		a, err := m.dev.Alloc(skip + n)
		if err != nil {
			return nil, err
		}
		m.Buffer, m.free = fabric.Buffer{Addr: a.Addr(), Kind: kindOf(m.dev), Device: dev}, a.Close
	}
	m.Addr += skip
	m.Len = n
	if err := e.register(m); err != nil {
		return nil, errors.Join(err, m.free())
	}
	return m, nil
}

// register registers m under a key of its own.
func (e *end) register(m *registered) (err error) {
	key := fabric.RegionKey{ID: regionIDs.Add(1)}
	_, _ = rand.Read(key.Secret[:]) // never fails
	m.mr, err = e.dom.Reg(m.Buffer, allRights, key)
	return err
}

func kindOf(d *device.Device) fabric.MemKind {
	if d.Vendor == device.HIP {
		return fabric.MemHIP
	}
	return fabric.MemCUDA
}

func (m *registered) close() error {
	err := m.mr.Close()
	return errors.Join(err, m.free())
}

// memory is openMemory for a test.
func (e *end) memory(tb testing.TB, dev int, skip, n uint64) *registered {
	tb.Helper()
	m, err := e.openMemory(dev, skip, n)
	ok(tb, err)
	tb.Cleanup(func() { ok(tb, m.close()) })
	return m
}

// imports makes a peer's region usable.
func (e *end) imports(tb testing.TB, raw []byte) uint64 {
	tb.Helper()
	r, err := e.dom.Import(raw)
	ok(tb, err)
	tb.Cleanup(func() { ok(tb, r.Close()) })
	return r.Key()
}

// seg is n bytes of m at off.
func (m *registered) seg(off, n uint64) fabric.Seg {
	return fabric.Seg{Addr: m.Addr + off, Len: n, MR: m.mr.Desc()}
}

// staged calls do with pinned memory of n bytes, and a stream.
func (m *registered) staged(n uint64, do func(host []byte, addr uint64, s *device.Stream) error) error {
	h, err := m.dev.AllocHost(max(n, 1))
	if err != nil {
		return err
	}
	s, err := m.dev.NewStream(device.Normal)
	if err != nil {
		return errors.Join(err, h.Close())
	}
	err = do(sys.Bytes(h.Addr(), int(n)), h.Addr(), s)
	return errors.Join(err, s.Close(), h.Close())
}

func settle(s *device.Stream) error {
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	defer cancel()
	return s.Wait(ctx)
}

// put writes b at off.
func (m *registered) put(off uint64, b []byte) error {
	if m.dev == nil {
		copy(sys.Bytes(m.Addr+off, len(b)), b)
		return nil
	}
	return m.staged(uint64(len(b)), func(host []byte, addr uint64, s *device.Stream) error {
		copy(host, b)
		if err := s.Copy(m.Addr+off, addr, uint64(len(b))); err != nil {
			return err
		}
		return settle(s)
	})
}

// get reads n bytes at off.
func (m *registered) get(off, n uint64) (b []byte, err error) {
	if m.dev == nil {
		return bytes.Clone(sys.Bytes(m.Addr+off, int(n))), nil
	}
	err = m.staged(n, func(host []byte, addr uint64, s *device.Stream) error {
		if err := s.Copy(addr, m.Addr+off, n); err != nil {
			return err
		}
		err := settle(s)
		b = bytes.Clone(host)
		return err
	})
	return b, err
}

// pattern is n bytes that follow from seed.
func pattern(n uint64, seed int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 12345
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

func (m *registered) fill(tb testing.TB, seed int) {
	tb.Helper()
	ok(tb, m.put(0, pattern(m.Len, seed)))
}

// has fails the test unless m begins with the pattern.
func (m *registered) has(tb testing.TB, n uint64, seed int) {
	tb.Helper()
	got, err := m.get(0, n)
	ok(tb, err)
	ok(tb, same(got, pattern(n, seed)))
}

func same(got, want []byte) error { return endtest.Same(got, want) }

// submit queues an op, for as long as the queue is full.
func (e *end) submit(op fabric.Op) error { return endtest.Submit(e.ctx, e.ep, op) }

// next waits for an op's end.
func (e *end) next() (fabric.Completion, error) { return endtest.Next(e.ctx, e.cq) }

// do submits an op and waits for its end.
func (e *end) do(op fabric.Op) error { return endtest.Do(e.ctx, e.ep, e.cq, op) }

// path is what the endpoint says of ops that went by the socket.
func (e *end) path() string {
	_, reason := e.ep.(fabric.Prober).Path()
	return reason
}

func addrOf(b []byte) uint64 { return sys.AddrOf(b) }
