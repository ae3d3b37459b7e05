// SPDX-License-Identifier: MIT

package devicetest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
	"mori/native/abi"
	"mori/native/nic"
)

// Each piece of work has a slot of its own in both memories, and moves what is at its beginning.
// Behind the slots is a word that all add to.
const (
	slotBytes = 256
	pieces    = 120
	sharedAt  = slotBytes * pieces
)

// A list is random work, and what must come of it.
type list struct {
	rnd   *rand.Rand
	a, b  *side
	most  int // bytes that an entry takes along
	kinds int // the first so many, from Write on
	work  []abi.NICWork
	local []byte // what a's memory must be at the end, and b's
	there []byte
	adds  []int // offsets where those come
	sum   uint64
}

func newList(s *setup, a, b *side) *list {
	l := &list{rnd: rand.New(rand.NewPCG(s.seed, 7)), a: a, b: b, most: s.vendor.inline, kinds: s.vendor.kinds}
	for i := range sharedAt {
		a.Mem[i], b.Mem[i] = byte(l.rnd.Uint32()), byte(l.rnd.Uint32())
	}
	clear(b.Mem[sharedAt : sharedAt+8])
	l.local, l.there = bytes.Clone(a.Mem), bytes.Clone(b.Mem)
	for i := range pieces {
		l.add(i * slotBytes)
	}
	return l
}

func (l *list) add(at int) {
	n := l.rnd.IntN(slotBytes)
	w := abi.NICWork{
		Remote: l.b.Addr(at), Local: l.a.Addr(at), Bytes: uint64(n), RKey: l.b.memory().RKey, LKey: l.a.memory().LKey,
		Value: l.rnd.Uint64(), CompareMask: l.rnd.Uint64(), ValueMask: l.rnd.Uint64(),
	}
	here, there := l.local[at:], l.there[at:]
	old := binary.LittleEndian.Uint64(there)
	word := func(v uint64) { // an atomic operation: the old value comes, a new one stays
		w.Bytes = 8
		binary.LittleEndian.PutUint64(here, old)
		binary.LittleEndian.PutUint64(there, v)
	}
	switch w.Kind = abi.NICKind(1 + l.rnd.IntN(l.kinds)); w.Kind {
	case abi.NICKindWrite:
		copy(there, here[:n])
	case abi.NICKindWriteInline:
		n %= l.most + 1
		w.Bytes = uint64(n)
		copy(there, here[:n])
	case abi.NICKindWriteValue:
		n = 1 + n%8
		w.Bytes = uint64(n)
		copy(there[:n], binary.LittleEndian.AppendUint64(nil, w.Value))
	case abi.NICKindRead:
		copy(here, there[:n])
	case abi.NICKindCompareSwap:
		if w.Compare = old; n%2 == 0 {
			word(w.Value)
		} else {
			w.Compare++
			word(old)
		}
	case abi.NICKindMaskedCompareSwap: // of five segments: in two blocks
		w.Compare = old ^ ^w.CompareMask
		word(old&^w.ValueMask | w.Value&w.ValueMask)
	case abi.NICKindMaskedFetchAdd:
		w.ValueMask = 1 << 63 // one field
		word(old + w.Value)
	default:
		w.Kind, w.Bytes, w.Value, w.Remote = abi.NICKindFetchAdd, 8, 1, l.b.Addr(sharedAt)
		l.adds = append(l.adds, at)
		l.sum++
	}
	if l.rnd.IntN(8) == 0 {
		w.Flags |= abi.NICFenced
	}
	l.work = append(l.work, w)
}

// check compares all memory, and that every add saw another old value.
func (l *list) check(t *testing.T) {
	t.Helper()
	seen := map[uint64]bool{}
	for _, at := range l.adds {
		seen[binary.LittleEndian.Uint64(l.a.Mem[at:])] = true
		copy(l.local[at:], l.a.Mem[at:at+8])
	}
	for i := range l.sum {
		if !seen[i] {
			t.Errorf("no add saw %d", i)
		}
	}
	binary.LittleEndian.PutUint64(l.there[sharedAt:], l.sum)
	for _, m := range []struct {
		name      string
		got, want []byte
	}{{"this side", l.a.Mem, l.local}, {"the peer", l.b.Mem, l.there}} {
		if i := firstDifference(m.got, m.want); i >= 0 {
			t.Errorf("byte %d of %s is %#x, want %#x: work %+v", i, m.name, m.got[i], m.want[i], l.work[min(i/slotBytes, pieces-1)])
		}
	}
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// raw is the list as the kernel reads it, in memory that stays.
func (l *list) raw(t *testing.T) uint64 {
	t.Helper()
	b, err := sys.Alloc(abi.NICWorkBytes * len(l.work))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sys.Free(b) })
	copy(b, abi.SliceBytes(l.work))
	return sys.AddrOf(b)
}

// TestLists: threads, warps, blocks and lanes of warps post random work to one queue at once.
func TestLists(t *testing.T) {
	each(t, 1, func(t *testing.T, s setup) {
		s.access = mlx5.AccessRelaxed
		a, b := pair(t, s)
		l := newList(&s, a, b)
		out := a.run(grid, nic.Post{
			Queue: a.view, Limit: patience, Work: l.raw(t), Count: uint64(len(l.work)), Posters: abi.NICPosters(s.seed % 4), Window: uint32(s.seed % 3),
		})
		if out.Done != uint64(len(l.work)) {
			t.Errorf("%d pieces were posted, want %d", out.Done, len(l.work))
		}
		if v := a.state(); v.Completed != v.Reserved || v.Published != v.Reserved || v.Bells != 0 || v.PollLock != 0 || v.Status != 0 {
			t.Errorf("the queue is left as %+v", v)
		}
		l.check(t)
		clean(t, a, b)
	})
}
