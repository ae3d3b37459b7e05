// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/native/verbs/verbstest"
)

// A region that is longer than what a device registers at once is granted in pieces, and ops go
// across them.
func TestRegionsInPieces(t *testing.T) {
	verbstest.Limit(t, "max_mr_size=65536")
	a, b := newEnds(t, way{Settings: Settings{QPs: 2}})
	local, remote := a.memory(t, longest+1000), b.memory(t, longest+1000)
	key := a.imports(t, remote.mr)
	for _, n := range []uint64{65536, 65537, 200_000, longest} {
		moves(t, a, local, remote, key, n, 1, 1)
		moves(t, a, local, remote, key, n, 7, 5)
	}
	wants(t, a, 1, 2)
	// The last bytes, and the two at a border.
	for _, at := range []uint64{remote.Len - 2, 1<<16 - 1, 3<<16 - 1} {
		remote.bytes[at], remote.bytes[at+1] = 0, 0
		op := fabric.Op{Kind: fabric.OpWrite, Seg: local.seg(at, 2), RSeg: fabric.RSeg{Addr: at, Len: 2, Key: key}}
		local.bytes[at], local.bytes[at+1] = 1, 2
		ok(t, a.do(op))
		if remote.bytes[at] != 1 || remote.bytes[at+1] != 2 {
			t.Errorf("at %d: %d, %d", at, remote.bytes[at], remote.bytes[at+1])
		}
	}
}

// What devices do not register goes by TCP, is right all the same, and Path says why.
func TestRegistrationIsRefused(t *testing.T) {
	a, b := newEnds(t, way{})
	const n = 300_000
	local, remote := a.memory(t, n), b.memory(t, n)
	key := a.imports(t, remote.mr)
	a.path(t)
	verbstest.Fail(t, "ibv_reg_mr=12")
	local.fill(1)
	ok(t, a.do(local.write(n, key)))
	ok(t, same(remote.bytes, local.bytes))
	remote.fill(2)
	ok(t, a.do(local.read(n, key)))
	ok(t, same(remote.bytes, local.bytes))
	op := local.write(n, key)
	op.Flags, op.Data = fabric.OpRemoteData, 0
	ok(t, a.do(op))
	ok(t, b.hears(1, nil))
	if path := b.reason(); !strings.Contains(path, "TCP") || !strings.Contains(path, "locked-memory") {
		t.Errorf("the target's path: %s", path)
	}

	// A region that the target has registered, and memory here that is not.
	verbstest.Fail(t, "")
	good := b.memory(t, n)
	key = a.imports(t, good.mr)
	ok(t, a.do(local.write(8, key))) // inline
	verbstest.Fail(t, "ibv_reg_mr=12")
	local.fill(3)
	ok(t, a.do(local.write(n, key)))
	ok(t, same(good.bytes, local.bytes))
	if path := a.reason(); !strings.Contains(path, "TCP") || !strings.Contains(path, "locked-memory") {
		t.Errorf("the initiator's path: %s", path)
	}
}

// constants are n bytes that may not be written.
func constants(tb testing.TB, n uint64) []byte {
	tb.Helper()
	b, err := sys.Alloc(int(n))
	ok(tb, err)
	copy(b, pattern(n, 9))
	ok(tb, syscall.Mprotect(b, syscall.PROT_READ))
	tb.Cleanup(func() { ok(tb, sys.Free(b)) })
	return b
}

// Memory that may only be read is a source like others, and no destination.
func TestReadOnlyMemory(t *testing.T) {
	for _, n := range []uint64{8, 4000, 300_000} { // inline, by a spare, registered
		for _, registered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes/registered=%v", n, registered), func(t *testing.T) {
				a, b := newEnds(t, way{})
				fixed := constants(t, n)
				remote := b.memory(t, n)
				key := a.imports(t, remote.mr)
				if registered {
					mr, err := a.register(fabric.Buffer{Addr: sys.AddrOf(fixed), Len: n}, fabric.AccessRemoteRead)
					ok(t, err)
					defer func() { ok(t, mr.Close()) }()
				}
				source := &memory{Buffer: fabric.Buffer{Addr: sys.AddrOf(fixed), Len: n}, bytes: fixed}
				for range 2 { // also when all is known
					clear(remote.bytes)
					ok(t, a.do(source.write(n, key)))
					ok(t, same(remote.bytes, fixed))
				}
				fails(t, a.do(source.read(n, key)), fabric.Errno(syscall.EFAULT), "local memory")
				ok(t, same(fixed, pattern(n, 9)))
				ok(t, a.do(source.write(n, key)))
			})
		}
	}
}

// Memory that is not there ends its op, and nothing else.
func TestMemoryThatIsNotThere(t *testing.T) {
	a, b := newEnds(t, way{})
	remote, good := b.memory(t, 300_000), a.memory(t, 4096)
	key := a.imports(t, remote.mr)
	hole, err := sys.Alloc(300_000)
	ok(t, err)
	defer func() { ok(t, sys.Free(hole)) }()
	ok(t, syscall.Mprotect(hole, syscall.PROT_NONE))
	bad := &memory{Buffer: fabric.Buffer{Addr: sys.AddrOf(hole), Len: 300_000}}
	for _, n := range []uint64{8, 4000} { // inline, by a spare
		for range 2 {
			fails(t, a.do(bad.write(n, key)), fabric.Errno(syscall.EFAULT), "local memory")
			fails(t, a.do(bad.read(n, key)), fabric.Errno(syscall.EFAULT), "local memory")
			ok(t, a.do(good.write(4096, key)))
		}
	}
	if err := a.do(bad.read(300_000, key)); err == nil { // by the stream, which may end with it
		t.Error("memory that is not there was read into")
	}
}

// A target of constants can be read, and not be written.
func TestReadOnlyTarget(t *testing.T) {
	const n = 5000
	a, b := newEnds(t, way{})
	fixed := constants(t, n)
	mr, err := b.register(fabric.Buffer{Addr: sys.AddrOf(fixed), Len: n}, fabric.AccessRemoteRead)
	ok(t, err)
	defer func() { ok(t, mr.Close()) }()
	local, key := a.memory(t, n), a.imports(t, mr)
	ok(t, a.do(local.read(n, key)))
	ok(t, same(local.bytes, fixed))
	fails(t, a.do(local.write(n, key)), fabric.ErrAccess)
	ok(t, a.do(local.read(n, key)))
	wants(t, a, 1, 1)
}

// A region closes while a peer reads and writes it: the ops end well or with ErrNoKey, nothing
// comes once Close has returned, and the connection does not suffer.
func TestRegionsCloseUnderThePeer(t *testing.T) {
	a, b := newEnds(t, way{Settings: Settings{QPs: 2}})
	const n = 1 << 19
	local, kept := a.memory(t, n), b.memory(t, n)
	keep := a.imports(t, kept.mr)
	target, err := sys.Alloc(n)
	ok(t, err)
	defer func() { ok(t, sys.Free(target)) }()
	local.fill(1)
	after := pattern(n, 2)
	rounds, refused := 60, 0
	if verbstest.Real() {
		rounds = 20
	}
	for i := range rounds {
		mr, err := b.register(fabric.Buffer{Addr: sys.AddrOf(target), Len: n}, allRights)
		ok(t, err)
		rm, err := a.dom.Import(mr.Raw())
		ok(t, err)
		key := rm.Key()
		ops := []fabric.Op{local.write(n, key), local.write(4096, key), local.write(64, key), local.read(4096, key), local.write(8, key), local.read(n, key)}
		ok(t, a.do(local.write(64, key)))
		begun := make(chan error, 1)
		go func() { begun <- errors.Join(a.submit(ops...), a.submit(ops...)) }()
		time.Sleep(time.Duration(i%12) * 50 * time.Microsecond)
		ok(t, mr.Close())
		copy(target, after)
		ok(t, <-begun)
		for range 2 * len(ops) {
			if _, err := a.next(); err != nil {
				refused++
				fails(t, err, fabric.ErrNoKey)
			}
		}
		ok(t, same(target, after))
		ok(t, rm.Close())
		local.fill(1)
		ok(t, a.do(local.write(n, keep)))
	}
	if refused == 0 || refused == rounds*12 {
		t.Errorf("%d of %d ops were refused: no region closed under one", refused, rounds*12)
	}
}

// A region that closes while its last connection is ending is the program's again only when devices
// know nothing of it.
func TestRegionClosesBesideTheConnection(t *testing.T) {
	a, b := newEnds(t, way{})
	local, remote := a.memory(t, 1<<16), b.memory(t, 4096)
	ok(t, a.do(local.write(4096, a.imports(t, remote.mr))))
	d := a.path(t).domain
	key, _, err := fabric.ParseRegionKey(local.mr.Raw())
	ok(t, err)
	g := d.regions.All()[key.ID]
	if !g.use.Enter() { // as an op does
		t.Fatal("the region is not in use")
	}
	left, closed := make(chan error, 1), make(chan error, 1)
	go func() { left <- a.ep.Close() }()
	for leaving := false; !leaving; time.Sleep(time.Millisecond) {
		ok(t, a.ctx.Err())
		leaving = d.regions.All()[key.ID] == nil
	}
	go func() { closed <- local.mr.Close() }()
	select {
	case err := <-closed:
		t.Errorf("closed while a device knows the region: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	g.use.Leave()
	ok(t, errors.Join(<-left, <-closed))
	if len(g.mrs) != 0 {
		t.Error("a device knows the region after Close")
	}
}

// The initiator's own region closes under its ops: Close waits for them, or they go another way.
func TestRegionsCloseUnderOwnOps(t *testing.T) {
	a, b := newEnds(t, way{})
	const n = 1 << 18
	remote := b.memory(t, n)
	key := a.imports(t, remote.mr)
	mem, err := sys.Alloc(2 * n) // what is written, and where is read to: ops have no order
	ok(t, err)
	defer func() { ok(t, sys.Free(mem)) }()
	m := &memory{Buffer: fabric.Buffer{Addr: sys.AddrOf(mem), Len: 2 * n}, bytes: mem}
	m.fill(1)
	read := m.read(4096, key)
	read.Seg.Addr += n
	for i := range 40 {
		m.mr, err = a.register(m.Buffer, allRights)
		ok(t, err)
		ops := []fabric.Op{m.write(n, key), m.write(4096, key), m.write(n, key), read}
		ok(t, a.submit(ops...))
		time.Sleep(time.Duration(i%8) * 50 * time.Microsecond)
		ok(t, m.mr.Close())
		for range ops {
			_, err := a.next()
			ok(t, err)
		}
		ok(t, same(remote.bytes, mem[:n]))
	}
}
