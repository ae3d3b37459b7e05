// SPDX-License-Identifier: MIT

package peer

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/io/internal/arrivals"
	"mori/io/internal/backend"
	"mori/io/internal/control"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
	"mori/io/internal/gate"
	"mori/io/internal/identity"
	"mori/io/internal/message"
	"mori/io/internal/meter"
	"mori/io/internal/region"
	"mori/io/internal/stall"
	"mori/io/internal/transfer"
	"mori/io/internal/watch"
)

// An end is an engine with a TCP backend, to test its peers. It admits all engines.
type end struct {
	self     control.Self
	backends *backend.Table
	regions  region.Table
}

func newEnd(t *testing.T, key string) *end {
	t.Helper()
	signer, err := identity.NewSigner()
	if err != nil {
		t.Fatal(err)
	}
	e := &end{self: control.Self{Key: key, NodeID: "node", Incarnation: 1, Signer: signer, Log: slog.New(slog.DiscardHandler)}}
	e.backends = backend.NewTable(backend.TableConfig{Self: &e.self, Answers: e, Host: "127.0.0.1", Regions: &e.regions,
		Arrivals: arrivals.NewTable(func(identity.ID) bool { return true }), Created: func() {}})
	t.Cleanup(func() {
		for _, tr := range e.backends.Close() {
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	if err := e.backends.Create(backend.TCP, backend.DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *end) Admits(identity.ID) error                { return nil }
func (e *end) Knows(string) bool                       { return true }
func (e *end) Drop([]byte) bool                        { return false }
func (e *end) TakeTags(identity.ID, []message.Tag) int { return 0 }

func (e *end) RegionSize(k descriptor.RegionKey) (uint64, bool) {
	r := e.regions.Granted(k)
	if r == nil {
		return 0, false
	}
	return r.Desc().Size, true
}

func (e *end) Offer() (endpoints []message.Endpoint, notify bool) {
	for _, tr := range e.backends.Transports() {
		endpoints = append(endpoints, message.Endpoint{Name: tr.Name(), Addr: string(tr.Addr())})
	}
	return endpoints, true
}

// memory registers n bytes.
func (e *end) memory(t *testing.T, n int) *region.Region {
	t.Helper()
	mem := make([]byte, n)
	t.Cleanup(func() { runtime.KeepAlive(mem) })
	r, err := region.New(&e.self, region.Request{Addr: uint64(reflect.ValueOf(mem).Pointer()), Size: uint64(n), Ordinal: -1, Location: descriptor.LocCPU})
	if err != nil {
		t.Fatal(err)
	}
	e.regions.Add(r)
	for _, tr := range e.backends.Transports() {
		if err := r.Attach(tr); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = r.Revoke() })
	return r
}

// A far pair has an engine a, and b, which has a as a peer.
type far struct{ a, b *end }

func newFar(t *testing.T) *far { return &far{newEnd(t, "a"), newEnd(t, "b")} }

// addr returns the address on which a's data plane listens.
func (f *far) addr() string { return string(f.a.backends.Transports()[0].Addr()) }

// peer returns b's Peer for a, and a route to it.
func (f *far) peer(t *testing.T) (*Peer, *backend.Route) {
	t.Helper()
	d, _ := f.a.backends.Desc()
	var ends watch.Endings
	p := New(&Config{Self: &f.b.self, Gates: &gate.Set{}, HasXGMI: func() bool { return false }, Pace: DefaultPace,
		Reporter: &transfer.Reporter{Log: f.b.self.Log, Recorder: &meter.Recorder{}, Endings: &ends, Stalls: &stall.Traces{}}}, d)
	t.Cleanup(func() { p.Close(errs.ErrClosed) })
	local, remote := f.b.memory(t, 64), f.a.memory(t, 64)
	r, _, err := f.b.backends.Choose(local, remote.Desc(), &backend.Peer{Port: d.Port, SameNode: p.SameNode()})
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

// offering returns b's Peer for a, and a Welcome of a that offers its data plane over TCP at addr.
func (f *far) offering(t *testing.T, addr string) (*Peer, *backend.Route, *message.Welcome) {
	t.Helper()
	p, r := f.peer(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	w, err := p.control.Greet(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.Endpoints {
		if w.Endpoints[i].Name == "tcp" {
			w.Endpoints[i].Addr = addr
		}
	}
	return p, r, w
}

func TestAPathIsOpenedOnceAndClosedWithItsPeer(t *testing.T) {
	f := newFar(t)
	p, r := f.peer(t)
	ctx, cancel := p.Limit(20 * time.Second)
	defer cancel()
	q, err := p.Path(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.Path(ctx, r); again != q || err != nil {
		t.Errorf("another path: %v, %v", again, err)
	}
	if d := p.Describe(); len(d.Paths) != 1 || d.Paths[0].Path != q.Name() || d.Paths[0].Backend != "TCP" {
		t.Errorf("%+v", d)
	}
	p.Close(errs.ErrBadState)
	if !errors.Is(q.Err(), errs.ErrBadState) {
		t.Errorf("the path of a closed peer: %v", q.Err())
	}
	if _, err := p.Path(context.Background(), r); !errors.Is(err, errs.ErrBadState) {
		t.Errorf("a path to a closed peer: %v", err)
	}
	if p.tasks.spawn(func() {}) {
		t.Error("a closed peer starts a goroutine")
	}
}

// A transport that broke is tried after the others, and is due again after a while.
func TestATransportThatBrokeComesLast(t *testing.T) {
	f := newFar(t)
	p, _ := f.peer(t)
	if err := f.b.backends.Create(backend.RDMA, backend.DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	names := func() (out []string) {
		for _, tr := range p.dialer.healthyFirst(f.b.backends.Transports()) {
			out = append(out, tr.Name())
		}
		return out
	}
	before := names()
	p.health.Broke(before[0], fabric.ErrConnReset)
	if got, want := names(), append(slices.Clone(before[1:]), before[0]); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestVerifyAsksThePeer(t *testing.T) {
	f := newFar(t)
	p, _ := f.peer(t)
	ctx, cancel := p.Limit(20 * time.Second)
	defer cancel()
	d := *f.a.memory(t, 64).Desc()
	if err := p.Verify(ctx, &d); err != nil {
		t.Errorf("a region that is registered: %v", err)
	}
	longer, unknown := d, d
	longer.Size++
	unknown.Secret[0] ^= 1
	if err := p.Verify(ctx, &longer); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("with another size: %v", err)
	}
	if err := p.Verify(ctx, &unknown); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("with another key: %v", err)
	}
}

func TestReplaysRestLongerEachTime(t *testing.T) {
	for n, want := range []time.Duration{0, 20 * time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond} {
		if got := DefaultPace.after(int32(n)); got != want {
			t.Errorf("back-off after %d replays: %v, want %v", n, got, want)
		}
	}
	if got := DefaultPace.after(MaxReplays); got != time.Second {
		t.Errorf("last back-off: %v", got)
	}
}

// named returns a peer for a Table.
func named(key string, incarnation uint64) *Peer {
	d := descriptor.Engine{Key: key, Incarnation: incarnation}
	d.PublicKey[0] = byte(incarnation)
	return &Peer{Desc: d}
}

func TestATableAdmitsTheRegisteredIncarnation(t *testing.T) {
	all := NewTable()
	first, second := named("a", 1), named("a", 2)
	if err := all.Admits(first.Desc.ID()); err != nil {
		t.Errorf("an engine that is not registered: %v", err)
	}
	if all.Put(first) != nil || all.Put(second) != first || all.Get("a") != second {
		t.Error("a peer is not put in place of the former")
	}
	if who, ok := all.Registered("a"); !ok || who != second.Desc.ID() || !all.IsRegistered(who) {
		t.Errorf("registered: %v, %v", who, ok)
	}
	if err := all.Admits(second.Desc.ID()); err != nil {
		t.Errorf("the registered incarnation: %v", err)
	}
	if err := all.Admits(first.Desc.ID()); !errors.Is(err, errs.ErrNotFound) || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("the former incarnation: %v", err)
	}
	if err := all.Admits(named("a", 3).Desc.ID()); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("another incarnation: %v", err)
	}
	if all.Remove("a") != second || all.Remove("a") != nil || all.Admits(second.Desc.ID()) == nil {
		t.Error("a peer that was removed may connect")
	}
	if all.Put(first); all.Admits(first.Desc.ID()) != nil {
		t.Error("an incarnation that is registered again may not connect")
	}
}

func TestRetiredIncarnationsAreBounded(t *testing.T) {
	var r retired
	id := func(n int) identity.ID { return identity.ID{Key: strconv.Itoa(n), Incarnation: 1} }
	for n := range maxRetired + 10 {
		r.add(id(n))
	}
	if len(r.all) != maxRetired || r.has(id(9)) || !r.has(id(10)) {
		t.Errorf("%d are remembered, want %d, without the oldest", len(r.all), maxRetired)
	}
}
