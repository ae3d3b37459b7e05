// SPDX-License-Identifier: MIT

package conn

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/endtest"
	"mori/core/provider/internal/frame"
)

const testDeadline = 30 * time.Second

// A rig is one well-behaved side: a listener and an endpoint for each dialer.
type rig struct {
	testing.TB
	ctx context.Context
	log *endtest.Log
	fab *Fabric
	dom fabric.Domain
	ln  fabric.Listener
	cq  fabric.CQ
	eq  fabric.EQ
	ep  *Endpoint
	can uint16 // features of the dialer
}

func newRig(tb testing.TB, attach func(Port, any) (DataPath, error)) *rig {
	tb.Helper()
	return newRigOf(tb, Config{Attach: attach})
}

// newRigOf fills in what a fabric needs.
func newRigOf(tb testing.TB, cfg Config) *rig {
	tb.Helper()
	cfg.Links = 1
	return newRigIn(tb, cfg, nil)
}

// newRigIn returns a rig whose domain is opened with in.
func newRigIn(tb testing.TB, cfg Config, in *fabric.Info) *rig {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	r := &rig{TB: tb, ctx: ctx, log: &endtest.Log{}}
	cfg.Info, cfg.Transport = fabric.Info{Provider: "test"}, endtest.Loopback{}
	cfg.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	f, err := New(cfg)
	r.must(err)
	r.fab = f
	r.dom, err = f.Domain(ctx, in)
	r.must(err)
	r.ln, err = f.Listen(ctx, nil)
	r.must(err)
	r.cq, err = r.dom.CQ(1024)
	r.must(err)
	r.eq, err = f.EQ(8)
	r.must(err)
	r.ep = r.endpoint()
	tb.Cleanup(func() {
		cancel()
		for _, c := range []io.Closer{r.ep, r.ln, r.cq, r.eq, r.dom, r.fab} {
			r.must(c.Close())
		}
	})
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) endpoint() *Endpoint {
	r.Helper()
	e, err := r.dom.Endpoint(nil)
	r.must(err)
	r.must(e.BindCQ(r.cq, fabric.DirTransmit|fabric.DirRecv, false))
	r.must(e.BindEQ(r.eq))
	r.must(e.Enable())
	return e.(*Endpoint)
}

// event waits for the next event.
func (r *rig) event(kind fabric.EventKind) fabric.Event {
	r.Helper()
	e, err := r.eq.Wait(r.ctx)
	r.must(err)
	if e.Kind != kind {
		r.Fatalf("event %+v, want kind %d", e, kind)
	}
	return e
}

// dial connects plain sockets to the rig's endpoint and does the handshake.
func (r *rig) dial(links int) []net.Conn {
	r.Helper()
	conns := make([]net.Conn, links)
	for i := range conns {
		c, err := net.Dial("tcp", string(r.ln.Addr()))
		r.must(err)
		r.Cleanup(func() { _ = c.Close() })
		r.must(c.SetDeadline(time.Now().Add(testDeadline)))
		h := frame.Handshake{Min: frame.Version, Max: frame.Version, Link: uint8(i), Links: uint8(links), Nonce: [16]byte{1}, Features: r.can, Tx: 8}
		_, err = c.Write(h.Append(nil))
		r.must(err)
		conns[i] = c
	}
	req, err := r.ln.Accept(r.ctx)
	r.must(err)
	r.must(r.ep.Accept(r.ctx, req, nil))
	a, err := frame.ReadHandshakeReply(conns[0])
	r.must(err)
	if a.Verdict != frame.Accepted {
		r.Fatalf("answer %+v", a)
	}
	r.event(fabric.EventConnected)
	return conns
}

// share registers n bytes and returns them with their key.
func (r *rig) share(n int) ([]byte, fabric.RegionKey) {
	r.Helper()
	mem, err := sys.Alloc(n)
	r.must(err)
	r.Cleanup(func() { r.must(sys.Free(mem)) })
	key := fabric.RegionKey{ID: 77, Secret: [16]byte{1, 2, 3}}
	mr, err := r.dom.Reg(fabric.Buffer{Addr: sys.AddrOf(mem), Len: uint64(n)}, fabric.AccessRemoteRead|fabric.AccessRemoteWrite, key)
	r.must(err)
	r.Cleanup(func() { r.must(mr.Close()) })
	return mem, key
}

// encode returns an encoded frame: header, table, payload.
func encode(h frame.Header, segs []fabric.RSeg, payload []byte) []byte {
	b := make([]byte, frame.HeaderLen)
	for _, s := range segs {
		var e [frame.SegmentLen]byte
		frame.PutSegment(e[:], s.Addr, s.Len)
		b = append(b, e[:]...)
	}
	switch h.Kind {
	case frame.KindAck, frame.KindExtension, frame.KindAtomic:
		h.TableChecksum = frame.Checksum(0, payload)
	default:
		h.TableChecksum = frame.Checksum(0, b[frame.HeaderLen:])
		if h.Flags&frame.FlagChecksum != 0 && h.Checksum == 0 {
			h.Checksum = frame.Checksum(0, payload)
		}
	}
	h.Put(b)
	return append(b, payload...)
}

func readFrame(tb testing.TB, c io.Reader) (h frame.Header, body []byte) {
	tb.Helper()
	b := make([]byte, frame.HeaderLen)
	if _, err := io.ReadFull(c, b); err != nil {
		tb.Fatal(err)
	}
	if err := frame.ParseHeader(&h, b); err != nil {
		tb.Fatal(err)
	}
	n := h.WireLen()
	if h.Kind == frame.KindAck {
		n = uint64(h.Count) * frame.AckLen
	}
	body = make([]byte, n)
	if _, err := io.ReadFull(c, body); err != nil {
		tb.Fatal(err)
	}
	return h, body
}

// join connects a to b.
func join(a, b *rig) {
	a.Helper()
	accepted := make(chan error, 1)
	go func() {
		req, err := b.ln.Accept(b.ctx)
		if err == nil {
			err = b.ep.Accept(b.ctx, req, nil)
		}
		accepted <- err
	}()
	_, err := a.ep.Connect(a.ctx, b.ln.Addr(), nil)
	a.must(err)
	b.must(<-accepted)
	a.event(fabric.EventConnected)
	b.event(fabric.EventConnected)
}

// imported imports a peer's region of n bytes and returns its key.
func (r *rig) imported(k fabric.RegionKey, n int) (key uint64) {
	r.Helper()
	rm, err := r.dom.Import(k.Raw(uint64(n)))
	r.must(err)
	r.Cleanup(func() { r.must(rm.Close()) })
	return rm.Key()
}
