// SPDX-License-Identifier: MIT

package verbs

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	chacha "math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/endtest"
	"mori/native/verbs/verbstest"
)

// testDeadline bounds a test. Soft-RoCE in a guest whose processor is emulated takes its time.
var testDeadline = map[bool]time.Duration{false: 40 * time.Second, true: 4 * time.Minute}[verbstest.Real()]

const allRights = fabric.AccessRemoteRead | fabric.AccessRemoteWrite

// A logBuffer is the log of an end.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// An end is a host of its own as far as the provider can see, with one endpoint.
type end struct {
	fab fabric.Fabric
	dom fabric.Domain
	cq  fabric.CQ
	eq  fabric.EQ
	ep  fabric.Endpoint
	ctx context.Context
	log *logBuffer
	gpu bool

	closed endtest.Stack
}

// A way is how an end is made. The zero value is good.
type way struct {
	Settings
	releaseWait time.Duration
	setupWait   time.Duration
	cqSize      int
	gpu         bool // the domain takes memory of GPUs
	tls         *tls.Config
}

func (w *way) options(log *logBuffer) Options {
	s := w.Settings
	if s.GIDIndex == 0 { // no test wants that one
		s.GIDIndex = -1
	}
	return Options{
		Settings: func() (Settings, error) { return s, nil },
		Log:      slog.New(slog.NewTextHandler(log, nil)), releaseWait: w.releaseWait, setupWait: w.setupWait, TLS: w.tls,
	}
}

// openEnd makes an enabled endpoint. close undoes it.
func openEnd(ctx context.Context, w way) (e *end, err error) {
	e = &end{ctx: ctx, log: &logBuffer{}}
	p := New(w.options(e.log))
	infos, err := p.GetInfo(ctx, "", "", nil)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.fab, err = p.Open(ctx, infos[0]); err != nil {
		return nil, err
	}
	e.closed = append(e.closed, e.fab.Close)
	e.gpu = w.gpu
	return e, e.open(w.cqSize)
}

// open makes what an end has of its fabric.
func (e *end) open(cqSize int) error {
	info := &fabric.Info{}
	if e.gpu {
		info.Caps = fabric.CapHMEM
	}
	if cqSize == 0 {
		cqSize = 1024
	}
	o, err := endtest.Open(e.ctx, e.fab, info, cqSize, &e.closed)
	e.dom, e.cq, e.eq, e.ep = o.Dom, o.CQ, o.EQ, o.EP
	return err
}

// close closes all in reverse order.
func (e *end) close() error { return e.closed.Close() }

func (e *end) connector() fabric.Connector { return e.ep.(fabric.Connector) }

// newEnd is openEnd for a test, which must leave nothing open.
func newEnd(tb testing.TB, w way) *end {
	tb.Helper()
	verbstest.Need(tb)
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	tb.Cleanup(cancel)
	e, err := openEnd(ctx, w)
	ok(tb, err)
	tb.Cleanup(func() { ok(tb, e.close()) })
	return e
}

// leavesNothing has the test fail if the library has objects more at its end than now.
func leavesNothing(tb testing.TB) {
	tb.Helper()
	verbstest.Need(tb)
	if verbstest.Real() {
		return
	}
	before := verbstest.Objects(tb)
	tb.Cleanup(func() {
		if after := verbstest.Objects(tb); after > before {
			tb.Errorf("%d objects of the library are left", after-before)
		}
	})
}

// newEnds makes two connected ends.
func newEnds(tb testing.TB, w way) (a, b *end) {
	tb.Helper()
	return newEndsOf(tb, w, w)
}

func newEndsOf(tb testing.TB, wa, wb way) (a, b *end) {
	tb.Helper()
	leavesNothing(tb)
	a, b = newEnd(tb, wa), newEnd(tb, wb)
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

// path is the only data path of an end that is connected, with its rails up.
func (e *end) path(tb testing.TB) *dataPath {
	tb.Helper()
	for _, m := range e.fab.(*network).all.Members() {
		dp := m.Path.(*dataPath)
		select {
		case <-dp.rails.ready:
			return dp
		case <-e.ctx.Done():
			tb.Fatal("the rails do not come up")
		}
	}
	tb.Fatal("the end is not connected")
	return nil
}

// A memory is a registered buffer.
type memory struct {
	fabric.Buffer
	mr    fabric.MR
	bytes []byte
}

var regionIDs atomic.Uint64

func (e *end) openMemory(n uint64) (*memory, error) {
	b, err := sys.Alloc(int(n))
	if err != nil {
		return nil, err
	}
	m := &memory{bytes: b, Buffer: fabric.Buffer{Addr: sys.AddrOf(b), Len: n}}
	if m.mr, err = e.register(m.Buffer, allRights); err != nil {
		return nil, errors.Join(err, sys.Free(b))
	}
	return m, nil
}

// register registers memory under a key of its own.
func (e *end) register(b fabric.Buffer, rights fabric.Access) (fabric.MR, error) {
	key := fabric.RegionKey{ID: regionIDs.Add(1)}
	_, _ = rand.Read(key.Secret[:]) // never fails
	return e.dom.Reg(b, rights, key)
}

func (m *memory) close() error { return errors.Join(m.mr.Close(), sys.Free(m.bytes)) }

// memory is openMemory for a test.
func (e *end) memory(tb testing.TB, n uint64) *memory {
	tb.Helper()
	m, err := e.openMemory(n)
	ok(tb, err)
	tb.Cleanup(func() { ok(tb, m.close()) })
	return m
}

// imports makes a peer's region usable.
func (e *end) imports(tb testing.TB, mr fabric.MR) uint64 {
	tb.Helper()
	r, err := e.dom.Import(mr.Raw())
	ok(tb, err)
	tb.Cleanup(func() { ok(tb, r.Close()) })
	return r.Key()
}

// seg is n bytes of m at off.
func (m *memory) seg(off, n uint64) fabric.Seg { return fabric.Seg{Addr: m.Addr + off, Len: n} }

// write is an op that writes n bytes from the beginning of m to that of a region.
func (m *memory) write(n, key uint64) fabric.Op {
	return fabric.Op{Kind: fabric.OpWrite, Seg: m.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}
}

func (m *memory) read(n, key uint64) fabric.Op {
	return fabric.Op{Kind: fabric.OpRead, Seg: m.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}
}

// pattern is n bytes that follow from seed.
func pattern(n uint64, seed int) []byte {
	b := make([]byte, n)
	_, _ = chacha.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(b) // never fails
	return b
}

func (m *memory) fill(seed int) { copy(m.bytes, pattern(m.Len, seed)) }

// same says where two runs of bytes differ.
func same(got, want []byte) error { return endtest.Same(got, want) }

// submit queues ops, for as long as the queue is full.
func (e *end) submit(ops ...fabric.Op) error { return endtest.Submit(e.ctx, e.ep, ops...) }

// next waits for an op's end.
func (e *end) next() (fabric.Completion, error) { return endtest.Next(e.ctx, e.cq) }

// do submits an op and waits for its end.
func (e *end) do(op fabric.Op) error { return endtest.Do(e.ctx, e.ep, e.cq, op) }

// reason is what the endpoint says of how bytes go.
func (e *end) reason() string {
	_, reason := e.ep.(fabric.Prober).Path()
	return reason
}

// ends waits for the end of the connection, and returns its cause.
func (e *end) ends(tb testing.TB) error {
	tb.Helper()
	for {
		ev, err := e.eq.Wait(e.ctx)
		ok(tb, err)
		if ev.Kind == fabric.EventShutdown && ev.EP == e.ep { // others share the queue
			return ev.Err
		}
	}
}

// fails wants an op's end to be by this cause, in these words.
func fails(tb testing.TB, err error, cause fabric.Errno, words ...string) {
	tb.Helper()
	if !errors.Is(err, cause) {
		tb.Errorf("got %v, want %v", err, cause)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			tb.Errorf("%q does not say %q", err, w)
		}
	}
}
