// SPDX-License-Identifier: MIT

package conn

import (
	"encoding/binary"
	"errors"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/util/atomics"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

// memory returns n bytes and their segment.
func (r *rig) memory(n int) ([]byte, fabric.Seg) {
	r.Helper()
	b, err := sys.Alloc(n)
	r.must(err)
	r.Cleanup(func() { r.must(sys.Free(b)) })
	return b, fabric.Seg{Addr: sys.AddrOf(b), Len: uint64(n)}
}

// atomicPair connects a to b, which shares 4096 bytes.
func atomicPair(t *testing.T) (a, b *rig, far []byte, key uint64) {
	t.Helper()
	a, b = newRig(t, nil), newRig(t, nil)
	join(a, b)
	far, k := b.share(4096)
	return a, b, far, a.imported(k, 4096)
}

func TestAtomicsExecuteAtTheTarget(t *testing.T) {
	a, _, far, key := atomicPair(t)
	in, operand := a.memory(8)
	cmp, compare := a.memory(8)
	out, result := a.memory(8)
	for i, c := range []struct {
		kind                fabric.OpKind
		op                  fabric.AtomicOp
		before, in, cmp     uint64
		wantThere, wantBack uint64
	}{
		{fabric.OpAtomic, fabric.AtomicSum, 40, 2, 0, 42, 0},
		{fabric.OpFetchAtomic, fabric.AtomicBXor, 6, 3, 0, 5, 6},
		{fabric.OpFetchAtomic, fabric.AtomicRead, 9, 77, 0, 9, 9},
		{fabric.OpFetchAtomic, fabric.AtomicWrite, 9, 77, 0, 77, 9},
		{fabric.OpCompareAtomic, fabric.AtomicCSwap, 7, 8, 7, 8, 7},
		{fabric.OpCompareAtomic, fabric.AtomicCSwap, 7, 8, 6, 7, 7},
		{fabric.OpCompareAtomic, fabric.AtomicMSwap, 0xff00, 0x1234, 0xff, 0xff34, 0xff00},
	} {
		binary.NativeEndian.PutUint64(far[16:], c.before)
		binary.NativeEndian.PutUint64(in, c.in)
		binary.NativeEndian.PutUint64(cmp, c.cmp)
		binary.NativeEndian.PutUint64(out, 0)
		at := &fabric.Atomic{Op: c.op, Type: fabric.Uint64}
		if c.kind != fabric.OpAtomic {
			at.Result = result
		}
		if c.kind == fabric.OpCompareAtomic {
			at.Compare = compare
		}
		_, err := a.ep.Submit([]fabric.Op{{Kind: c.kind, Seg: operand, RSeg: fabric.RSeg{Addr: 16, Len: 8, Key: key}, Atomic: at, Ctx: uint64(i)}})
		a.must(err)
		if done, err := a.next(); err != nil || done.Ctx != uint64(i) || done.Kind != c.kind || done.Len != 8 {
			t.Fatalf("%v %v: %+v, %v", c.kind, c.op, done, err)
		}
		if there, back := binary.NativeEndian.Uint64(far[16:]), binary.NativeEndian.Uint64(out); there != c.wantThere || back != c.wantBack {
			t.Errorf("%v %v: %#x there and %#x back, want %#x and %#x", c.kind, c.op, there, back, c.wantThere, c.wantBack)
		}
	}
}

// TestTheLargestAtomicsPassCredit submits more fetching ops at once than the credit allows.
func TestTheLargestAtomicsPassCredit(t *testing.T) {
	a, _, far, key := atomicPair(t)
	in, operand := a.memory(atomics.MaxBytes)
	_, compare := a.memory(atomics.MaxBytes)
	_, result := a.memory(atomics.MaxBytes)
	for i := range in {
		in[i] = byte(i)
	}
	const count = 3 * frame.MaxReads
	op := fabric.Op{Kind: fabric.OpCompareAtomic, Seg: operand, RSeg: fabric.RSeg{Len: atomics.MaxBytes, Key: key},
		Atomic: &fabric.Atomic{Op: fabric.AtomicCSwap, Type: fabric.Uint8, Compare: compare, Result: result}}
	for range count {
		_, err := a.ep.Submit([]fabric.Op{op})
		a.must(err)
	}
	for range count {
		if _, err := a.next(); err != nil {
			t.Fatal(err)
		}
	}
	if string(far) != string(in) {
		t.Error("the operand is not there")
	}
}

func TestAtomicClaimsThatDoNotHold(t *testing.T) {
	r := newRig(t, nil)
	mem, key := r.share(4096)
	c := r.dial(1)[0]
	wrong := key
	wrong.Secret[0] ^= 1
	weak := fabric.RegionKey{ID: 78}
	_, seg := r.memory(64)
	mr, err := r.dom.Reg(fabric.Buffer{Addr: seg.Addr, Len: 64}, fabric.AccessRemoteRead, weak)
	r.must(err)
	t.Cleanup(func() { r.must(mr.Close()) })
	code := func(kind fabric.OpKind, op fabric.AtomicOp) uint32 {
		return uint32(frame.AtomicCodeOf(kind, &fabric.Atomic{Op: op, Type: fabric.Uint32}))
	}
	for _, bad := range []struct {
		name   string
		key    fabric.RegionKey
		kind   fabric.OpKind
		op     fabric.AtomicOp
		offset uint64
		want   fabric.Errno
	}{
		{"a wrong secret", wrong, fabric.OpAtomic, fabric.AtomicSum, 0, fabric.ErrNoKey},
		{"a region that is not", fabric.RegionKey{ID: 5}, fabric.OpAtomic, fabric.AtomicSum, 0, fabric.ErrNoKey},
		{"beyond the end", key, fabric.OpAtomic, fabric.AtomicSum, 4094, fabric.ErrRange},
		{"beyond the end, with an answer", key, fabric.OpFetchAtomic, fabric.AtomicSum, 4096, fabric.ErrRange},
		{"around the end of numbers", key, fabric.OpAtomic, fabric.AtomicSum, 1<<64 - 4, fabric.ErrRange},
		{"between two elements", key, fabric.OpAtomic, fabric.AtomicSum, 2, fabric.ErrInvalid},
		{"no right to write", weak, fabric.OpAtomic, fabric.AtomicSum, 0, fabric.ErrAccess},
		{"no right to fetch and write", weak, fabric.OpFetchAtomic, fabric.AtomicSum, 0, fabric.ErrAccess},
		{"the right to read", weak, fabric.OpFetchAtomic, fabric.AtomicRead, 0, 0},
	} {
		h := frame.Header{Kind: frame.KindAtomic, Ticket: 3, Count: code(bad.kind, bad.op), Length: 4, Region: bad.key.ID, Secret: bad.key.Secret, Data: bad.offset}
		_, err := c.Write(encode(h, nil, make([]byte, frame.AtomicCode(h.Count).PayloadLen(4))))
		r.must(err)
		got, body := readFrame(t, c)
		errno := fabric.Errno(got.Data)
		if bad.kind == fabric.OpAtomic {
			if got.Kind != frame.KindAck || len(body) != frame.AckLen {
				t.Fatalf("%s: %v frame of %d bytes", bad.name, got.Kind, len(body))
			}
			errno = frame.ParseAck(body).Errno
		} else if got.Kind != frame.KindReply || got.Ticket != 3 {
			t.Fatalf("%s: %v frame for %d", bad.name, got.Kind, got.Ticket)
		}
		if errno != bad.want {
			t.Errorf("%s: %v, want %v", bad.name, errno, bad.want)
		}
	}
	for _, b := range mem {
		if b != 0 {
			t.Fatal("a refused op touched the region")
		}
	}
}

func TestAtomicFramesThatMeanNothing(t *testing.T) {
	sum := uint32(frame.AtomicCodeOf(fabric.OpAtomic, &fabric.Atomic{Op: fabric.AtomicSum, Type: fabric.Uint32}))
	for name, h := range map[string]frame.Header{
		"no code":                   {Length: 4},
		"a kind that is not atomic": {Count: uint32(fabric.OpWrite)<<16 | sum&0xffff, Length: 4},
		"a fourth byte":             {Count: 1<<24 | sum, Length: 4},
		"an op of another kind":     {Count: uint32(frame.AtomicCodeOf(fabric.OpAtomic, &fabric.Atomic{Op: fabric.AtomicCSwap, Type: fabric.Uint32})), Length: 4},
		"bits of floats":            {Count: uint32(frame.AtomicCodeOf(fabric.OpAtomic, &fabric.Atomic{Op: fabric.AtomicBOr, Type: fabric.Float32})), Length: 4},
		"no type":                   {Count: sum &^ 0xff, Length: 4},
		"no bytes":                  {Count: sum},
		"half an element":           {Count: sum, Length: 6},
		"too many elements":         {Count: sum, Length: atomics.MaxBytes + 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			c := r.dial(1)[0]
			h.Kind = frame.KindAtomic
			_, err := c.Write(encode(h, nil, nil))
			r.must(err)
			if e := r.event(fabric.EventShutdown); !errors.Is(e.Err, fabric.ErrProtocol) {
				t.Fatalf("connection ended by %v", e.Err)
			}
		})
	}
}
