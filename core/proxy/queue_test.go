// SPDX-License-Identifier: MIT

package proxy

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/native/abi"
	kernels "mori/native/proxy"
)

// TestAtomicsHaveTheFabricsNumbers: kernels name atomics by the numbers of core/fabric.
func TestAtomicsHaveTheFabricsNumbers(t *testing.T) {
	for number, want := range map[abi.ProxyAtomic]fabric.AtomicOp{
		abi.ProxyAtomicAdd: fabric.AtomicSum, abi.ProxyAtomicBitOr: fabric.AtomicBOr, abi.ProxyAtomicBitAnd: fabric.AtomicBAnd,
		abi.ProxyAtomicBitXor: fabric.AtomicBXor, abi.ProxyAtomicRead: fabric.AtomicRead, abi.ProxyAtomicSet: fabric.AtomicWrite,
		abi.ProxyAtomicCompareSwap: fabric.AtomicCSwap,
	} {
		if fabric.AtomicOp(number) != want {
			t.Errorf("kernels name %v %d", want, number)
		}
	}
}

// TestManyThreadsPut: a hundred thousand puts of 32 threads through a small ring, and every byte
// looked at.
func TestManyThreadsPut(t *testing.T) {
	const count, bytes = 100_000, 24
	each(t, func(t *testing.T, from fabric.Provider) {
		near, far := newEnd(t, from, count*bytes), newEnd(t, from, count*bytes)
		pattern(near.data, 1)
		q := near.queue(Config{Slots: 256}, near, far)
		near.ran("put", kernels.Put(grid, q.Device(), 1, false, sys.AddrOf(near.data), bytes, count))
		near.same("at the peer", far.data, near.data)
		if s := q.Stats(); s.Commands != count || s.Bytes != count*bytes || s.Failed != 0 {
			t.Errorf("%d puts of %d bytes are %+v", count, bytes, s)
		}
	})
}

// TestWaitMeansThere: each put is waited for, over a ring that wraps at every other command.
func TestWaitMeansThere(t *testing.T) {
	const count, bytes = 200, 1000
	each(t, func(t *testing.T, from fabric.Provider) {
		near, far := newEnd(t, from, count*bytes), newEnd(t, from, count*bytes)
		pattern(near.data, 2)
		q := near.queue(Config{Slots: 2}, far)
		near.ran("put", kernels.Put(kernels.Grid{Blocks: 1, Threads: 4}, q.Device(), 0, true, sys.AddrOf(near.data), bytes, count))
		near.same("at the peer", far.data, near.data)
	})
}

// TestFetchingAddsSeeEachValueOnce: threads add to one word, and no two see the same value.
func TestFetchingAddsSeeEachValueOnce(t *testing.T) {
	each(t, func(t *testing.T, from fabric.Provider) {
		near, far := newEnd(t, from, 64), newEnd(t, from, 64)
		q := near.queue(Config{Slots: 32}, far)
		seen := make([]uint32, 500)
		near.ran("add", kernels.Add(grid, q.Device(), 0, 1, 8, seen))
		for old, times := range seen {
			if times != 1 {
				t.Fatalf("value %d was seen %d times", old, times)
			}
		}
		if sum := sys.Load64(sys.AddrOf(far.words) + 8); sum != uint64(len(seen)) {
			t.Errorf("the word is %d after %d adds", sum, len(seen))
		}
	})
}

// TestInterchange: two sides, each with a queue, and kernels that run for all rounds.
func TestInterchange(t *testing.T) {
	const rounds, bytes = 300, 1021
	each(t, func(t *testing.T, from fabric.Provider) {
		a, b := newEnd(t, from, bytes), newEnd(t, from, bytes)
		qa, qb := a.queue(Config{Slots: 16}, b), b.queue(Config{Slots: 16}, a)
		side := func(q *Queue, e *end) abi.ProxyInterchangeSide {
			return abi.ProxyInterchangeSide{Queue: q.Device(), Local: sys.AddrOf(e.data), Bytes: bytes, Words: sys.AddrOf(e.words), Rounds: rounds, Value: 42}
		}
		var sent, got abi.ProxyInterchangeOutcome
		var wg sync.WaitGroup
		wg.Add(1)
		go func() { defer wg.Done(); sent = kernels.Send(8, side(qa, a)) }()
		got = kernels.Receive(4, side(qb, b))
		wg.Wait()
		if sent.Status != 0 || got.Status != 0 || sent.Rounds != rounds || got.Rounds != rounds || got.Wrong != 0 {
			t.Fatalf("sender %+v (%s), receiver %+v (%s)", sent, describe(qa), got, describe(qb))
		}
		for i, v := range b.data {
			if v != 42 {
				t.Fatalf("byte %d is %d", i, v)
			}
		}
	})
}

// TestRingWithoutAProxy: kernels of a queue without a thread end, and the first of their waits is
// reported.
func TestRingWithoutAProxy(t *testing.T) {
	near, far := memPair(t, 4096)
	q := near.built(Config{Slots: 4, Wait: 20 * time.Millisecond}, build, far)
	defer func() { near.must(errors.Join(near.port.Close(), q.free())) }()
	o := kernels.Put(kernels.Grid{Blocks: 1, Threads: 8}, q.Device(), 0, false, sys.AddrOf(near.data), 8, 64)
	const timeout, stopped = 0x10002, 0x10003
	if o.Failed == 0 || o.Status != timeout && o.Status != stopped {
		t.Fatalf("%+v, want timeouts", o)
	}
	if r, ok := q.Report(); !ok || r.Ended != 0 || r.Ticket == 0 || r.Count == 0 {
		t.Errorf("report %+v, %v", r, ok)
	}
}

// TestClosedQueueStopsKernels: the waits of kernels end when the queue closes.
func TestClosedQueueStopsKernels(t *testing.T) {
	near, far := memPair(t, 1<<16)
	q := near.built(Config{Slots: 4}, build, far)
	done := make(chan abi.ProxyPutOutcome)
	go func() {
		done <- kernels.Put(kernels.Grid{Blocks: 1, Threads: 4}, q.Device(), 0, true, sys.AddrOf(near.data), 8, 64)
	}()
	for atomic.LoadUint64(&q.places.ring[0].First) == 0 { // a command is there
		runtime.Gosched()
	}
	q.stop.Store(true)
	go q.worker.run()
	if o := <-done; o.Status != 0x10003 {
		t.Errorf("%+v, want stopped", o)
	}
	near.must(q.Close())
	near.must(q.Close())
	if err := q.Reset(0); !errors.Is(err, ErrClosed) {
		t.Errorf("reset after close: %v", err)
	}
}

// TestIdleNaps: a queue without work sleeps, and wakes for the next command.
func TestIdleNaps(t *testing.T) {
	near, far := memPair(t, 4096)
	pattern(near.data, 3)
	q := near.queue(Config{}, far)
	p := &poster{q: q}
	for i := range uint64(3) {
		for before := q.Stats().Naps; q.Stats().Naps < before+3; {
			time.Sleep(time.Millisecond)
		}
		p.put(0, i*1024, i*1024, 1024)
		p.wait(t)
	}
	near.must(q.Err(0))
	near.same("at the peer", far.data[:3072], near.data[:3072])
}

// TestBytesUnderWayAreBounded: puts wait for those before, one that is longer than the bound goes
// alone, and all arrive.
func TestBytesUnderWayAreBounded(t *testing.T) {
	each(t, func(t *testing.T, from fabric.Provider) {
		const bytes = 1 << 20
		near, far := newEnd(t, from, bytes), newEnd(t, from, bytes)
		pattern(near.data, 4)
		q := near.queue(Config{Bytes: 4096}, far)
		p := &poster{q: q}
		p.put(0, 0, 0, bytes/2)
		for off := uint64(bytes / 2); off < bytes; off += 1024 {
			p.put(0, off, off, 1024)
		}
		p.wait(t)
		near.must(q.Err(0))
		near.same("at the peer", far.data, near.data)
	})
}

func TestPause(t *testing.T) {
	p := pause{spin: 50 * time.Microsecond, most: 300 * time.Microsecond}
	now := time.Duration(0)
	clock := func() time.Duration { now += 30 * time.Microsecond; return now }
	var naps []time.Duration
	for range 6 * looks {
		if d := p.next(clock); d != 0 {
			naps = append(naps, d)
		}
		if len(naps) == 5 {
			break
		}
	}
	want := []time.Duration{50, 100, 200, 300, 300}
	for i := range want {
		if i >= len(naps) || naps[i] != want[i]*time.Microsecond {
			t.Fatalf("naps %v, want %v µs", naps, want)
		}
	}
	p.work()
	if d := p.next(clock); d != 0 {
		t.Errorf("a nap of %v right after work", d)
	}
}

func TestConfigIsChecked(t *testing.T) {
	e := newEnd(t, providers["mem"](), 64)
	peer := e.reach(e)
	good := Config{Port: e.port, Peers: []Peer{peer}, Local: e.local}
	for what, spoil := range map[string]func(*Config){
		"no port":          func(c *Config) { c.Port = nil },
		"three slots":      func(c *Config) { c.Slots = 3 },
		"one slot":         func(c *Config) { c.Slots = 1 },
		"too many slots":   func(c *Config) { c.Slots = 1 << 21 },
		"no peers":         func(c *Config) { c.Peers = nil },
		"no local memory":  func(c *Config) { c.Local = nil },
		"a negative nap":   func(c *Config) { c.Nap = -1 },
		"too many regions": func(c *Config) { c.Peers = []Peer{{Regions: make([]Remote, 1<<16+1)}} },
	} {
		c := good
		spoil(&c)
		if _, err := New(c); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v, want ErrConfig", what, err)
		}
	}
}
