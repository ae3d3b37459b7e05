// SPDX-License-Identifier: MIT

package proxy

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/native/abi"
	kernels "mori/native/proxy"
)

// An owner is an end whose data is as a GPU's: peers have to request atomics on it.
type owner struct {
	*end
	server *AtomicServer
	q      *Queue
	gate   chan struct{} // nil: changes are done at once
	bad    error         // what they end with
	done   atomic.Uint64
}

// owners are two ends with a queue each, after set has seen them.
func owners(t *testing.T, from fabric.Provider, bytes int, set func(a *owner)) (near, far *owner) {
	t.Helper()
	both := make([]*owner, 2)
	for i := range both {
		a := &owner{end: newEnd(t, from, bytes)}
		var err error
		a.server, err = NewAtomicServer(a.port, 2)
		a.must(err)
		a.mine[0].Host = false
		a.mine = append(a.mine, a.server.Shown())
		both[i] = a
		if set != nil {
			set(a)
		}
	}
	for i, a := range both {
		peers := make([]Peer, 2)
		p := a.reach(both[1-i].end)
		p.Server = p.Regions[2]
		p.Regions = p.Regions[:2]
		peers[1-i] = p
		var err error
		a.q, err = New(Config{Port: a.port, Peers: peers, Local: a.local, Wait: deadline, Slots: 64, AtomicServer: a.server, Self: i, Atomics: a.change})
		a.must(err)
		t.Cleanup(func() {
			a.closes()
			if err := errors.Join(a.q.Close(), a.server.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	return both[0], both[1]
}

// gated has changes wait for the test.
func gated(a *owner) { a.gate = make(chan struct{}) }

// change does what a GPU would.
func (a *owner) change(c Change) (old uint64, err error) {
	if a.gate != nil {
		<-a.gate
	}
	if a.bad != nil {
		return 0, a.bad
	}
	defer a.done.Add(1)
	if c.Op == fabric.AtomicSum && c.Word == 8 {
		return sys.Add64(c.Addr, c.Value) - c.Value, nil
	}
	if c.Op == fabric.AtomicSum {
		return uint64(sys.Add32(c.Addr, uint32(c.Value)) - uint32(c.Value)), nil
	}
	return 0, fmt.Errorf("%v: %w", c.Op, fabric.ErrNotSupported)
}

// TestRequests: the atomics of many threads on memory that only its own side has atomics on, each
// of which sees another value.
func TestRequests(t *testing.T) {
	each(t, func(t *testing.T, from fabric.Provider) {
		near, far := owners(t, from, 4096, nil)
		seen := make([]uint32, 400)
		near.ran("add", kernels.Add(grid, near.q.Device(), 1, 0, 64, seen))
		for v, times := range seen {
			if times != 1 {
				t.Fatalf("value %d was there %d times", v, times)
			}
		}
		if got := sys.Load64(sys.AddrOf(far.data) + 64); got != uint64(len(seen)) || far.done.Load() != uint64(len(seen)) {
			t.Errorf("the word is %d after %d adds, of which %d were asked for", got, len(seen), far.done.Load())
		}
		if err := near.q.Err(1); err != nil {
			t.Error(err)
		}
	})
}

// A signal that is added to comes after its payload, and what follows a fence after the answers.
func TestRequestsKeepOrder(t *testing.T) {
	each(t, func(t *testing.T, from fabric.Provider) {
		near, far := owners(t, from, 1<<20, gated)
		pattern(near.data, 3)
		const n, signalAt, flagAt = 1<<20 - 64, 1<<20 - 64, 1<<20 - 32
		p := poster{q: near.q}
		first := func(k kind) uint64 { return uint64(k)<<abi.ProxyKindShift | 1<<abi.ProxyPlaceBits }
		p.post(first(kindPutSignal), uint64(fabric.AtomicSum)|8<<8, sys.AddrOf(near.data), 0, n, 5, 0, signalAt)
		p.post(first(kindFence), 0)
		p.post(first(kindImmediate), 8<<8, 0, flagAt, 8, 1)
		far.gate <- struct{}{} // somebody is to change the signal: the payload is there
		far.same("payload", far.data[:n], near.data[:n])
		for end := time.Now().Add(deadline); far.done.Load() == 0; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatal("the signal is not changed")
			}
		}
		p.wait(t)
		base := sys.AddrOf(far.data)
		if signal, flag := sys.Load64(base+signalAt), sys.Load64(base+flagAt); signal != 5 || flag != 1 {
			t.Errorf("the signal is %d and the flag %d", signal, flag)
		}
		// The flag waits for as long as the answer takes.
		p.post(first(kindAtomic), uint64(fabric.AtomicSum)|8<<8, 0, signalAt, 8, 5)
		p.post(first(kindFence), 0)
		p.post(first(kindImmediate), 8<<8, 0, flagAt, 8, 2)
		time.Sleep(20 * time.Millisecond)
		if flag := sys.Load64(base + flagAt); flag != 1 {
			t.Errorf("the flag is %d before the atomic in front of its fence", flag)
		}
		far.gate <- struct{}{}
		p.wait(t)
		if signal, flag := sys.Load64(base+signalAt), sys.Load64(base+flagAt); signal != 10 || flag != 2 {
			t.Errorf("the signal is %d and the flag %d at last", signal, flag)
		}
		if err := near.q.Err(1); err != nil {
			t.Error(err)
		}
	})
}

// What the other side cannot do comes back as its error, and so does what it refuses.
func TestRequestsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		bad    error
		terms  uint64
		offset uint64
		want   fabric.Errno
	}{
		"it fails there":   {fabric.ErrTimeout, uint64(fabric.AtomicSum) | 8<<8, 0, fabric.ErrTimeout},
		"no such op there": {nil, uint64(fabric.AtomicBOr) | 8<<8, 0, fabric.ErrNotSupported},
	} {
		t.Run(name, func(t *testing.T) {
			near, _ := owners(t, providers["mem"](), 4096, func(a *owner) { a.bad = c.bad })
			p := poster{q: near.q}
			p.post(uint64(kindFetch)<<abi.ProxyKindShift|1<<abi.ProxyPlaceBits, c.terms, 0, c.offset, 8, 1)
			p.post(uint64(kindFetch)<<abi.ProxyKindShift|1<<abi.ProxyPlaceBits, c.terms, 0, c.offset, 8, 1)
			p.wait(t)
			if err := near.q.Err(1); !errors.Is(err, c.want) {
				t.Errorf("the PE's error is %v, want %v", err, c.want)
			}
		})
	}
}

// Who is asked and is gone, or never answers, keeps no queue from its end.
func TestRequestsThatNobodyAnswers(t *testing.T) {
	near, far := owners(t, providers["tcp"](), 4096, gated)
	p := poster{q: near.q}
	for range 3 {
		p.post(uint64(kindAtomic)<<abi.ProxyKindShift|1<<abi.ProxyPlaceBits, uint64(fabric.AtomicSum)|8<<8, 0, 0, 8, 1)
	}
	time.Sleep(10 * time.Millisecond)
	if p.ended() != 0 {
		t.Error("an atomic has ended that was not done")
	}
	near.closes()
	p.wait(t)
	near.isClosed(1)
	close(far.gate)
}

// What a port that closes cancels on its way ends as what it finds under way.
func TestWhatAClosingPortCancels(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			near, far := owners(t, providers["tcp"](), 4096, gated)
			p := poster{q: near.q}
			for range 50 {
				p.post(uint64(kindAtomic)<<abi.ProxyKindShift|1<<abi.ProxyPlaceBits, uint64(fabric.AtomicSum)|8<<8, 0, 0, 8, 1)
			}
			near.closes()
			for end := time.Now().Add(deadline); atomic.LoadUint64(&near.q.places.board.Ended)&abi.ProxyClosed == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("the queue of a closed port is open after %v", deadline)
				}
			}
			if near.q.Err(1) != nil { // else no command had been begun
				near.isClosed(1)
			}
			close(far.gate)
		})
	}
}

// isClosed wants a PE's commands to have ended because the port closed.
func (a *owner) isClosed(pe int) {
	a.Helper()
	if err := a.q.Err(pe); !errors.Is(err, ErrClosed) || statusOf(err) != uint32(fabric.ErrClosed) {
		a.Errorf("the error of PE %d is %v, status %d", pe, err, statusOf(err))
	}
}

// FuzzRequest: whatever comes to an atomic server, nothing but words of the first local memory is
// changed.
func FuzzRequest(f *testing.F) {
	for _, op := range []fabric.AtomicOp{fabric.AtomicSum, fabric.AtomicRead, fabric.AtomicWrite, fabric.AtomicCSwap} {
		f.Add(uint64(op)|8<<8, uint64(0))
		f.Add(uint64(op)|4<<8, uint64(4092))
	}
	f.Add(uint64(fabric.AtomicSum)|8<<8, ^uint64(0)-7)
	f.Fuzz(func(t *testing.T, terms, offset uint64) {
		own := Local{Buffer: fabric.Buffer{Addr: 1 << 20, Len: 4096}}
		b := make([]byte, requestBytes)
		(&request{ticket: 1, terms: terms, offset: offset}).put(b)
		var a request
		var c Change
		var err error
		decodetest.Bounded(t, len(b), func() {
			a.parse(b)
			c, err = a.change(&own)
		})
		if err != nil {
			return
		}
		if c.Addr < own.Addr || c.Addr+uint64(c.Word) > own.Addr+own.Len || c.Addr%uint64(c.Word) != 0 || c.Word != 4 && c.Word != 8 {
			t.Errorf("terms %#x at %#x: %+v", terms, offset, c)
		}
	})
}
