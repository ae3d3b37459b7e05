// SPDX-License-Identifier: MIT

package verbs

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/native/verbs/verbstest"
)

// unregistered is n bytes of memory that no device knows.
func unregistered(tb testing.TB, n uint64) *memory {
	tb.Helper()
	b, err := sys.Alloc(int(n))
	ok(tb, err)
	tb.Cleanup(func() { ok(tb, sys.Free(b)) })
	return &memory{bytes: b, Buffer: fabric.Buffer{Addr: sys.AddrOf(b), Len: n}}
}

// Lengths of ops whose memory is not registered: inline, by spares, and registered for the op.
var unregisteredLengths = []uint64{8, 4000, 4097, 65_537, maxSpare, maxSpare + 1}

// Ops of memory that is not registered go by the NIC, whole and in pieces, and leave nothing
// registered.
func TestUnregisteredMemoryGoesByTheNIC(t *testing.T) {
	a, b := newEnds(t, way{Settings: Settings{QPs: 2}})
	remote := b.memory(t, 2<<20)
	key := a.imports(t, remote.mr)
	local := unregistered(t, 2<<20)
	for _, n := range unregisteredLengths { // from now on there are spares
		ok(t, a.do(local.write(n, key)))
	}
	before := 0
	if !verbstest.Real() {
		before = verbstest.Objects(t)
	}
	for _, n := range append(slices.Clone(unregisteredLengths), 1<<20) {
		moves(t, a, local, remote, key, n, 1, 1)
		moves(t, a, local, remote, key, n, 7, 5)
	}
	if path := a.reason(); path != a.path(t).rails.all[0].String() {
		t.Errorf("some op did not go by the NIC: %s", path)
	}
	if !verbstest.Real() {
		if n := verbstest.Objects(t); n != before {
			t.Errorf("%d registrations are left", n-before)
		}
	}
}

// replaced has other pages at the address of m.
var replaced = map[string]func(tb testing.TB, m *memory){
	"munmap and mmap": func(tb testing.TB, m *memory) {
		ok(tb, unmap(m.bytes))
		m.remap(tb, false)
	},
	"mmap over it":  func(tb testing.TB, m *memory) { m.remap(tb, true) },
	"MADV_DONTNEED": func(tb testing.TB, m *memory) { ok(tb, unix.Madvise(m.bytes, unix.MADV_DONTNEED)) },
	"fork":          func(tb testing.TB, _ *memory) { forked(tb) }, // what is written next goes to a page of its own
}

func (m *memory) remap(tb testing.TB, over bool) {
	tb.Helper()
	var err error
	m.bytes, err = mapAt(m.Addr, m.Len, over)
	ok(tb, err)
}

// The same address has other pages for each op: what goes is what is there now, and what comes is
// where the program sees it.
func TestOtherMemoryAtTheSameAddress(t *testing.T) {
	a, b := newEnds(t, way{})
	for _, n := range []uint64{8, 4000, maxSpare + 1} { // inline, by spares, and registered for the op
		remote := b.memory(t, n)
		key := a.imports(t, remote.mr)
		for what, replace := range replaced {
			t.Run(fmt.Sprintf("%s/%d bytes", what, n), func(t *testing.T) {
				bytes, err := mapAt(0, n, false)
				ok(t, err)
				local := &memory{bytes: bytes, Buffer: fabric.Buffer{Addr: sys.AddrOf(bytes), Len: n}}
				defer func() { ok(t, unmap(local.bytes)) }()
				turns(t, a, local, remote, key, replace)
			})
		}
	}
}

// turns writes and reads, with other pages for each.
func turns(tb testing.TB, a *end, local, remote *memory, key uint64, replace func(testing.TB, *memory)) {
	tb.Helper()
	for round := range 2 {
		local.fill(round)
		ok(tb, a.do(local.write(local.Len, key)))
		ok(tb, same(remote.bytes, local.bytes))
		replace(tb, local)
		remote.fill(100 + round)
		ok(tb, a.do(local.read(local.Len, key)))
		ok(tb, same(local.bytes, remote.bytes))
		replace(tb, local)
	}
}

// A program forks, and goes on writing to what is registered: devices see that, and the child does
// not.
func TestRegisteredMemoryAfterAFork(t *testing.T) {
	a, b := newEnds(t, way{})
	local, remote := a.memory(t, 300_000), b.memory(t, 300_000)
	turns(t, a, local, remote, a.imports(t, remote.mr), replaced["fork"])
}
