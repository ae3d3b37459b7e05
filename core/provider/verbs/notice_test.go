// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/native/verbs/verbstest"
)

// A teller writes to places of its own, with remote data that says which.
type teller struct {
	a, b          *end
	local, remote *memory
	key           uint64
	size          uint64
	ended         atomic.Int64 // ops
}

func newTeller(tb testing.TB, a, b *end, places int, size uint64) *teller {
	tb.Helper()
	x := &teller{a: a, b: b, local: a.memory(tb, uint64(places)*size), remote: b.memory(tb, uint64(places)*size), size: size}
	x.local.fill(int(size))
	x.key = a.imports(tb, x.remote.mr)
	return x
}

// op is the i-th. One in eight is as long as its place, the others are short.
func (x *teller) op(i int) fabric.Op {
	n := min(x.size, 200)
	if i%8 == 0 {
		n = x.size
	}
	at := uint64(i) * x.size
	return fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Data: uint64(i), Seg: x.local.seg(at, n), RSeg: fabric.RSeg{Addr: at, Len: n, Key: x.key}}
}

// placed reports whether all bytes of the i-th op are there.
func (x *teller) placed(i uint64) error {
	op := x.op(int(i))
	return same(x.remote.bytes[op.RSeg.Addr:][:op.RSeg.Len], x.local.bytes[op.RSeg.Addr:][:op.RSeg.Len])
}

// submitAll submits all ops from a goroutine and takes their ends.
func (x *teller) submitAll(n int) <-chan error {
	done := make(chan error, 1)
	go func() {
		for begun, ended := 0, 0; ended < n; {
			for begun < n && begun-ended < 100 {
				if err := x.a.submit(x.op(begun)); err != nil {
					done <- err
					return
				}
				begun++
			}
			if _, err := x.a.next(); err != nil {
				done <- fmt.Errorf("op after %d: %w", ended, err)
				return
			}
			ended++
			x.ended.Add(1)
		}
		done <- nil
	}()
	return done
}

// awaitNoCredit waits until a queue pair has no credits left, or no op has ended for a while: then
// ops have found none, and wait for room behind TCP. Credits that come back later find nobody who
// takes them.
func (x *teller) awaitNoCredit(tb testing.TB) {
	tb.Helper()
	ended, since := int64(-1), time.Now()
	for dp := x.a.path(tb); ; time.Sleep(time.Millisecond) {
		for _, p := range dp.rails.pairs {
			if p.credits.Load() <= 0 {
				return
			}
		}
		if n := x.ended.Load(); n != ended {
			ended, since = n, time.Now()
		} else if time.Since(since) > 200*time.Millisecond {
			return
		}
		if x.a.ctx.Err() != nil {
			tb.Fatal("the credits do not run out")
		}
	}
}

// A target that takes its remote data late gets each once, behind its bytes, whatever way it came.
func TestRemoteDataOfALateReader(t *testing.T) {
	for name, c := range map[string]struct {
		seed  int
		size  uint64
		rails int
	}{
		"long ops over all pairs": {0, 300 << 10, 1}, "short ops": {0, 512, 1},
		"two rails":       {0, 300 << 10, 2},
		"two rails, late": {7, 300 << 10, 2}, "two rails, later": {8, 4096, 2}, "one rail, late": {9, 300 << 10, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if c.rails > 1 {
				verbstest.Need(t, c.rails)
			}
			if c.seed > 0 {
				verbstest.Delay(t, c.seed)
			}
			s := Settings{RecvWR: 4, QPs: 2, Rails: c.rails}
			a, b := newEndsOf(t, way{Settings: s}, way{Settings: s, cqSize: 4})
			const n = 150
			x := newTeller(t, a, b, n, c.size)
			done := x.submitAll(n)
			x.awaitNoCredit(t)
			ok(t, b.hears(n, func(data uint64) error {
				if data%16 == 0 {
					time.Sleep(time.Millisecond)
				}
				return x.placed(data)
			}))
			ok(t, <-done)
			if dp := b.path(t); len(dp.notices.came) != 0 {
				t.Errorf("%d ops came in part", len(dp.notices.came))
			}
		})
	}
}

// Remote data of writes that succeeded is there for a reader that comes after the end of the
// connection.
func TestRemoteDataOutlivesTheConnection(t *testing.T) {
	for round := range 10 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			s := Settings{RecvWR: 64, QPs: 2}
			a, b := newEndsOf(t, way{Settings: s}, way{Settings: s, cqSize: 8})
			const n = 40
			x := newTeller(t, a, b, n, 512)
			ok(t, <-x.submitAll(n)) // there are credits for all
			ok(t, a.ep.Close())
			if err := b.ends(t); !errors.Is(err, fabric.ErrShutdown) {
				t.Errorf("the connection ended by %v", err)
			}
			ok(t, b.hears(n, x.placed))
		})
	}
}
