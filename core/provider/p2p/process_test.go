// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/provider/internal/endtest"
	"mori/native/gpu/gputest"
)

// Each way between memories of two processes: reads, writes, and sub-regions far inside their
// allocations.
func TestTwoProcesses(t *testing.T) {
	eachRoute(t, func(t *testing.T, r route) {
		const n = 3<<20 + 40
		a, c, key := newChild(t, r.remote, 64<<20, n)
		local := a.memory(t, r.local, 1<<20+16, n)
		local.fill(t, 1)
		ok(t, a.do(fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}))
		c.must(t, command{Do: "check", Seed: 1})
		c.must(t, command{Do: "fill", Seed: 2})
		ok(t, a.do(fabric.Op{Kind: fabric.OpRead, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}))
		local.has(t, n, 2)
		a.byGPU(t)
		c.must(t, command{Do: "close"})
		err := a.do(fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}})
		if !errors.Is(err, fabric.ErrNoKey) {
			t.Errorf("a write to a region that is closed: %v", err)
		}
	})
}

// Thousands of blocks in one op, in another order on either side: as blocks, and as segments.
func TestScatteredBlocks(t *testing.T) {
	fewRoutes(t, func(t *testing.T, r route) {
		const count, size = 3000, 1040
		a, c, key := newChild(t, r.remote, 0, count*size)
		local := a.memory(t, r.local, 0, count*size)
		for seed, spread := range []bool{false, true} {
			want := pattern(count*size, seed)
			moved := make([]byte, len(want))
			from, to := make([]uint64, count), make([]uint64, count)
			for i := range from {
				at := i * 1237 % count
				copy(moved[at*size:], want[i*size:(i+1)*size])
				from[i], to[i] = uint64(at)*size, uint64(i)*size
			}
			from[1], from[2], to[1], to[2] = from[2], from[1], to[2], to[1]
			var blocks fabric.Blocks
			ok(t, blocks.Set(size, from, to))
			op := fabric.Op{Kind: fabric.OpWrite, Blocks: &blocks, Seg: local.seg(0, count*size), RSeg: fabric.RSeg{Len: count * size, Key: key}}
			if spread {
				op.Spread()
			}
			ok(t, local.put(0, moved))
			ok(t, a.do(op))
			c.must(t, command{Do: "check", Seed: seed})
			ok(t, local.put(0, make([]byte, len(moved))))
			op.Kind = fabric.OpRead
			ok(t, a.do(op))
			got, err := local.get(0, count*size)
			ok(t, err)
			ok(t, same(got, moved))
		}
		a.byGPU(t)
	})
}

// What a peer writes under load stops when the region closes, and the peer hears of it.
func TestRevokeUnderLoad(t *testing.T) {
	fewRoutes(t, func(t *testing.T, r route) {
		const n = 1 << 20
		a, c, _ := newChild(t, r.local, 0, n) // the child is the initiator
		m, err := a.openMemory(r.remote, 0, n)
		ok(t, err)
		c.must(t, command{Do: "fill", Seed: 4})
		c.must(t, command{Do: "flood", N: n, Raw: m.mr.Raw()})
		awaitPattern(t, m, 4)
		ok(t, m.mr.Close())
		m.fill(t, 5)
		time.Sleep(20 * time.Millisecond) // something that is still on its way would come now
		m.has(t, n, 5)
		ok(t, m.free())
	})
}

// awaitPattern waits until all of m has been written.
func awaitPattern(tb testing.TB, m *registered, seed int) {
	tb.Helper()
	for end := time.Now().Add(testDeadline / 2); ; time.Sleep(time.Millisecond) {
		b, err := m.get(0, m.Len)
		ok(tb, err)
		if same(b, pattern(m.Len, seed)) == nil {
			return
		}
		if time.Now().After(end) {
			tb.Fatal("the peer did not write")
		}
	}
}

// A peer that dies in the middle of copies ends them here, and the memory is this side's again.
func TestPeerDies(t *testing.T) {
	fewRoutes(t, func(t *testing.T, r route) {
		const n = 1 << 20
		a, c, key := newChild(t, r.remote, 0, n)
		local, m := a.memory(t, r.local, 0, n), a.memory(t, r.local, 0, n)
		c.must(t, command{Do: "flood", N: n, Raw: m.mr.Raw()})
		op := fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}
		ok(t, a.do(op))
		for range 8 {
			ok(t, a.submit(op))
		}
		ok(t, c.cmd.Process.Kill())
		var err error
		for err == nil {
			if _, err = a.next(); err == nil {
				err = a.submit(op)
			}
		}
		if !errors.Is(err, fabric.ErrConnReset) && !errors.Is(err, fabric.ErrNotConn) && !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("ops to a dead peer: %v", err)
		}
		ok(t, m.mr.Close())
	})
}

// A copy into the memory of a process that has ended goes well as long as that is mapped here. It
// is no success, also before the connection is known to have ended.
func TestNothingSucceedsAtADeadPeer(t *testing.T) {
	const n = 4096
	for range 5 {
		a, c, key := newChild(t, 0, 0, n)
		local := a.memory(t, 0, 0, n)
		op := fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}
		ok(t, a.do(op))
		ok(t, c.cmd.Process.Kill())
		_ = c.cmd.Wait()
		if err := a.do(op); err == nil {
			t.Fatal("a write to a process that is no more succeeded")
		}
	}
}

// Local memory that no region has, and remote memory that cannot be exported, go by the socket, and
// Path says why.
func TestFallbackSaysWhy(t *testing.T) {
	a, c, key := newChild(t, 0, 0, 4096)
	host := make([]byte, 4096)
	copy(host, pattern(4096, 6))
	m := &registered{Buffer: fabric.Buffer{Addr: addrOf(host), Len: 4096}}
	ok(t, a.do(fabric.Op{Kind: fabric.OpWrite, Seg: fabric.Seg{Addr: m.Addr, Len: 4096}, RSeg: fabric.RSeg{Len: 4096, Key: key}}))
	c.must(t, command{Do: "check", Seed: 6})
	if why := a.path(); !strings.Contains(why, "not in a registered region") {
		t.Errorf("path: %s", why)
	}
}

// Virtual memory has no handle for other processes. The peer copies if it can reach the other end,
// else the socket carries the payload.
func TestVirtualMemory(t *testing.T) {
	const n = 300_000
	for _, c := range []struct {
		what     string
		dev      int // of the peer's memory, virtual or of the host
		bySocket bool
	}{{"virtual to a device's", 0, false}, {"virtual to the host's", -1, true}} {
		t.Run(c.what, func(t *testing.T) {
			a, child, key := newChild(t, c.dev, 0, n)
			local := a.virtual(t, n)
			local.fill(t, 1)
			op := fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: key}}
			ok(t, a.do(op))
			child.must(t, command{Do: "check", Seed: 1})
			child.must(t, command{Do: "fill", Seed: 2})
			op.Kind = fabric.OpRead
			ok(t, a.do(op))
			local.has(t, n, 2)
			if why := a.path(); strings.Contains(why, "virtual") != c.bySocket {
				t.Errorf("path: %s", why)
			}
		})
	}
	t.Run("a device's to virtual, by order", func(t *testing.T) {
		a, child, _ := newChild(t, 0, 0, n)
		remote := a.virtual(t, n)
		child.must(t, command{Do: "fill", Seed: 3})
		child.must(t, command{Do: "flood", N: n, Raw: remote.mr.Raw()})
		awaitPattern(t, remote, 3)
		if why := child.must(t, command{Do: "path"}).Path; strings.Contains(why, "socket") {
			t.Errorf("path: %s", why)
		}
		ok(t, remote.mr.Close())
	})
}

// Virtual memory of another device of this process may be closed to the one that copies.
func TestVirtualMemoryOfAnotherDevice(t *testing.T) {
	gputest.Need(t, 2)
	const n = 100_000
	a, b := newPair(t, Options{})
	local, remote := a.memory(t, 1, 0, n), b.virtual(t, n)
	local.fill(t, 1)
	ok(t, a.do(fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(0, n), RSeg: fabric.RSeg{Len: n, Key: a.imports(t, remote.mr.Raw())}}))
	remote.has(t, n, 1)
	if why := a.path(); !strings.Contains(why, "virtual or pool") {
		t.Errorf("path: %s", why)
	}
}

// virtual is memory of n bytes that has no handle.
func (e *end) virtual(tb testing.TB, n uint64) *registered {
	tb.Helper()
	all, err := device.Devices()
	ok(tb, err)
	v, err := all[0].Virtual()
	if errors.Is(err, errors.ErrUnsupported) {
		tb.Skip(err)
	}
	ok(tb, err)
	var opened []func() error
	r, err := v.Reserve(n, 0)
	ok(tb, err)
	opened = append(opened, r.Close)
	p, err := v.Create(n)
	ok(tb, err)
	opened = append(opened, p.Close)
	m, err := r.Map(0, r.Bytes(), p)
	ok(tb, err)
	opened = append(opened, m.Close)
	mem := &registered{dev: all[0], Buffer: fabric.Buffer{Addr: r.Addr(), Len: n, Kind: kindOf(all[0])}, free: func() error {
		var errs []error
		for _, undo := range slices.Backward(opened) {
			errs = append(errs, undo())
		}
		return errors.Join(errs...)
	}}
	ok(tb, e.register(mem))
	tb.Cleanup(func() { ok(tb, mem.close()) })
	return mem
}

// A peer that stands still does not keep a region from closing; it is disconnected.
func TestPeerStandsStill(t *testing.T) {
	const n = 1 << 16
	a, c, _ := newChildWith(t, Options{releaseWait: 300 * time.Millisecond}, 0, 0, n)
	m := a.memory(t, 0, 0, n)
	c.must(t, command{Do: "fill", Seed: 4})
	c.must(t, command{Do: "flood", N: n, Raw: m.mr.Raw()})
	awaitPattern(t, m, 4)
	ok(t, endtest.Stop(c.cmd))
	defer func() { _ = c.cmd.Process.Kill() }()
	ok(t, m.mr.Close())
	event, err := a.eq.Wait(a.ctx)
	for err == nil && event.Kind != fabric.EventShutdown {
		event, err = a.eq.Wait(a.ctx)
	}
	ok(t, err)
	if !errors.Is(event.Err, fabric.ErrTimeout) {
		t.Errorf("the connection ended with %v", event.Err)
	}
}
