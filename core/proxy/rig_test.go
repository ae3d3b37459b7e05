// SPDX-License-Identifier: MIT

package proxy

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/internal/sys"
	"mori/core/provider/mem"
	"mori/core/provider/shm"
	"mori/core/provider/tcp"
	"mori/core/provider/verbs"
	"mori/native/abi"
	"mori/native/gpu/gputest"
	kernels "mori/native/proxy"
	"mori/native/verbs/verbstest"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(onlyEnv); name != "" {
		maps.DeleteFunc(providers, func(other string, _ func() fabric.Provider) bool { return other != name })
		os.Exit(fabrictest.Main(m))
	}
	gputest.Start()
	verbstest.Main(m, func(m *testing.M) int {
		if os.Getenv(peerEnv) != "" {
			return peerProcess()
		}
		return fabrictest.Main(m)
	})
}

// onlyEnv names the one provider that the tests of this process run over, beside which nothing is
// emulated.
const onlyEnv = "MORI_PROXY_TEST_ONLY"

const deadline = 2 * time.Minute

// providers are all that a proxy may post to: those that need no hardware, verbs over RDMA devices
// or what stands in for them, and, where the tests are built with it, libfabric's.
var providers = map[string]func() fabric.Provider{
	"mem":   func() fabric.Provider { return mem.New(mem.Options{}) },
	"shm":   func() fabric.Provider { return shm.New(shm.Options{}) },
	"tcp":   func() fabric.Provider { return tcp.New(tcp.Options{}) },
	"verbs": func() fabric.Provider { return verbs.New(verbs.Options{}) },
}

// needs says what must be there for some of them, or skips the test.
var needs = map[string]func(testing.TB){"verbs": func(tb testing.TB) { verbstest.Need(tb) }}

// need is needs of any of them.
func need(tb testing.TB, name string) {
	tb.Helper()
	if f := needs[name]; f != nil {
		f(tb)
	}
}

// hintsFor has an endpoint listen where tests run.
func hintsFor(name string) *fabric.Info {
	h := &fabric.Info{Provider: name}
	switch name {
	case "tcp":
		h.Src = "127.0.0.1:0"
	case "ofi": // its regions have no secret, and what is refused ends the connection
		h.Mode = fabric.ModeKeyIsProof | fabric.ModeDenialFatal
	}
	return h
}

// An end is one side: a port with two regions of host memory, data and words.
type end struct {
	testing.TB
	port        *Port
	data, words []byte
	mine        []Shown
	local       []Local
}

func (e *end) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

const wordBytes = 4096

func newEnd(t testing.TB, from fabric.Provider, bytes int) *end {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	e := &end{TB: t}
	var err error
	e.port, err = Open(ctx, from, hintsFor(from.Name()))
	e.must(err)
	t.Cleanup(func() { e.closes() })
	for _, b := range []struct {
		at *[]byte
		n  int
	}{{&e.data, bytes}, {&e.words, wordBytes}} {
		mapped, err := sys.Alloc(b.n)
		e.must(err)
		*b.at = mapped
		t.Cleanup(func() { _ = e.port.Close(); _ = sys.Free(mapped) })
		buf := fabric.Buffer{Addr: sys.AddrOf(mapped), Len: uint64(b.n)}
		r, err := e.port.Register(buf)
		e.must(err)
		e.mine = append(e.mine, Shown{Raw: r.Raw, Len: uint64(b.n), Host: true})
		e.local = append(e.local, Local{Buffer: buf, Desc: r.Desc})
	}
	return e
}

// memPair is two ends in the memory of this process.
func memPair(t *testing.T, bytes int) (near, far *end) {
	t.Helper()
	from := providers["mem"]()
	return newEnd(t, from, bytes), newEnd(t, from, bytes)
}

func (e *end) closes() {
	e.Helper()
	if err := e.port.Close(); err != nil {
		e.Error(err)
	}
}

// queue makes one whose PEs are these.
func (e *end) queue(cfg Config, peers ...*end) *Queue {
	e.Helper()
	q := e.built(cfg, New, peers...)
	e.Cleanup(func() {
		if err := q.Close(); err != nil {
			e.Error(err)
		}
	})
	return q
}

func (e *end) built(cfg Config, make func(Config) (*Queue, error), peers ...*end) *Queue {
	e.Helper()
	for _, p := range peers {
		cfg.Peers = append(cfg.Peers, e.reach(p))
	}
	cfg.Port, cfg.Local = e.port, e.local
	if cfg.Wait == 0 {
		cfg.Wait = deadline
	}
	q, err := make(cfg)
	e.must(err)
	return q
}

func (e *end) reach(p *end) Peer {
	e.Helper()
	peer, err := e.port.Reach(p.port.Name(), p.mine)
	e.must(err)
	return peer
}

// each runs a case over every provider.
func each(t *testing.T, run func(t *testing.T, from fabric.Provider)) {
	for name, open := range providers {
		t.Run(name, func(t *testing.T) {
			need(t, name)
			run(t, open())
		})
	}
}

// A poster posts as kernels do, one at a time.
type poster struct {
	q    *Queue
	head uint64
}

// post writes a command and returns its ticket.
func (p *poster) post(first, second uint64, detail ...uint64) uint64 {
	n := uint64(p.q.cfg.Slots)
	for p.head >= n && p.ended() < p.head-n+1 {
		runtime.Gosched()
	}
	slot := p.head & (n - 1)
	if len(detail) > 0 {
		first |= abi.ProxyHasDetail
		var d [6]uint64
		copy(d[:], detail)
		p.q.places.details[slot] = abi.ProxyDetail{Local: d[0], Remote: d[1], Bytes: d[2], Value: d[3], Compare: d[4], Signal: d[5]}
	}
	lap := uint64(0)
	if lapOf(p.head, p.q.log) {
		lap = lapBit
	}
	words := &p.q.places.ring[slot]
	atomic.StoreUint64(&words.Second, second&^lapBit|lap)
	atomic.StoreUint64(&words.First, first&^lapBit|lap)
	p.head++
	return p.head
}

// put is a short command.
func (p *poster) put(pe int, remote, local, bytes uint64) uint64 {
	return p.post(uint64(kindPut)<<abi.ProxyKindShift|uint64(pe)<<abi.ProxyPlaceBits|remote, local|bytes<<abi.ProxyPlaceBits)
}

func (p *poster) ended() uint64 {
	return atomic.LoadUint64(&p.q.places.board.Ended) &^ (abi.ProxyTrouble | abi.ProxyClosed)
}

// wait waits for all that was posted.
func (p *poster) wait(t testing.TB) {
	t.Helper()
	for end := time.Now().Add(deadline); p.ended() < p.head; time.Sleep(20 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d commands ended within %v", p.ended(), p.head, deadline)
		}
	}
}

func pattern(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
}

func (e *end) same(what string, got, want []byte) {
	e.Helper()
	if string(got) == string(want) {
		return
	}
	for i := range want {
		if got[i] != want[i] {
			e.Fatalf("%s: byte %d of %d is %#x, want %#x", what, i, len(want), got[i], want[i])
		}
	}
}

// grid is a few blocks, so that threads of several compete.
var grid = kernels.Grid{Blocks: 4, Threads: 8}

func (e *end) ran(what string, o abi.ProxyPutOutcome) {
	e.Helper()
	if o.Failed != 0 {
		e.Fatalf("%s: %d waits failed, one with status %#x (%v)", what, o.Failed, o.Status, fabric.Errno(o.Status))
	}
}

func describe(q *Queue) string { return fmt.Sprintf("%+v", q.Stats()) }
