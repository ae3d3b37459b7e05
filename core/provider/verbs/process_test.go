// SPDX-License-Identifier: MIT

package verbs

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/endtest"
)

// awaitFlood waits until the child has written all of m, which needs no lock: nobody here looks at
// anything but whether it has come.
func awaitFlood(tb testing.TB, m *memory) {
	tb.Helper()
	for end := time.Now().Add(testDeadline / 2); sys.Load64(m.Addr+m.Len-8) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatal("the peer did not write")
		}
	}
}

// A process that is killed in the middle of transfers both ways ends them here, in bounded time,
// and the memory is this side's again.
func TestPeerIsKilled(t *testing.T) {
	leavesNothing(t)
	const n = 1 << 20
	a, c, key := newChild(t, way{Settings: Settings{QPs: 2}}, n)
	local, target := a.memory(t, n), a.memory(t, n)
	c.must(t, order{Do: "flood", Raw: target.mr.Raw()})
	awaitFlood(t, target)
	op := local.write(n, key)
	ok(t, a.do(op))
	for range 8 {
		ok(t, a.submit(op))
	}
	ok(t, c.cmd.Process.Kill())
	for left := 8; left > 0; left-- {
		if _, err := a.next(); err != nil {
			fails(t, err, fabric.ErrConnReset)
		} else if a.submit(op) == nil {
			left++
		}
	}
	fails(t, a.ends(t), fabric.ErrConnReset)
	ok(t, target.mr.Close())
	before := bytes.Clone(target.bytes)
	time.Sleep(5 * time.Millisecond)
	ok(t, same(target.bytes, before))
}

// A process that is killed under messages and atomic ops ends them here, in bounded time.
func TestPeerIsKilledUnderMessages(t *testing.T) {
	leavesNothing(t)
	const size = 8 << 10
	a, c, key := newChild(t, way{}, size)
	wired(t, a)
	mem := a.memory(t, size)
	add := fabric.Op{Kind: fabric.OpAtomic, Seg: mem.seg(0, 8), RSeg: fabric.RSeg{Len: 8, Key: key}, Atomic: &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Uint64}}
	ok(t, a.do(add))
	const n = 300 // more than it takes without receives
	for range n / 2 {
		ok(t, a.submit(mem.send(0, size, 1), add))
	}
	ok(t, c.cmd.Process.Kill())
	for range n {
		if _, err := a.next(); err != nil {
			fails(t, err, fabric.ErrConnReset)
		}
	}
	fails(t, a.ends(t), fabric.ErrConnReset)
}

// A process that stands still keeps neither a region nor an endpoint from closing.
func TestPeerStandsStill(t *testing.T) {
	for _, what := range []string{"region", "endpoint"} {
		t.Run(what, func(t *testing.T) {
			leavesNothing(t)
			const n = 1 << 18
			a, c, key := newChild(t, way{releaseWait: 300 * time.Millisecond}, n)
			local, target := a.memory(t, n), a.memory(t, n)
			c.must(t, order{Do: "flood", Raw: target.mr.Raw()})
			awaitFlood(t, target)
			ok(t, a.do(local.write(n, key)))
			ok(t, endtest.Stop(c.cmd))
			defer func() { _ = c.cmd.Process.Kill() }()
			ops := []fabric.Op{local.write(n, key), local.read(n, key), local.write(8, key)}
			ok(t, a.submit(ops...))
			closed := make(chan error, 1)
			go func() {
				if what == "region" {
					closed <- target.mr.Close()
				} else {
					closed <- a.ep.Close()
				}
			}()
			select {
			case err := <-closed:
				ok(t, err)
			case <-a.ctx.Done():
				t.Fatalf("the %s does not close", what)
			}
			if what == "region" {
				fails(t, a.ends(t), fabric.ErrTimeout, "did not return region")
			}
			for range ops { // an emulated device is stopped with its process, a real one answers
				if _, err := a.next(); err != nil && !errors.Is(err, fabric.ErrTimeout) && !errors.Is(err, fabric.ErrCanceled) {
					t.Errorf("an op ended by %v", err)
				}
			}
			ok(t, target.mr.Close())
		})
	}
}
