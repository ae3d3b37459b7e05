// SPDX-License-Identifier: MIT

package verbs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"mori/native/verbs"
)

// fill gives b bytes that depend on the seed.
func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i*7) + seed
	}
}

func TestWriteAndRead(t *testing.T) {
	r := newRig(t)
	a, _ := r.pair(common)
	local, remote := r.region(1<<16, all), r.region(1<<16, all)
	fill(local.bytes, 3)
	a.posts(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: remote.addr + 5, RKey: remote.Remote},
		local.sge(0, 10000), local.sge(20000, 20000))
	r.done(a.send, 1, verbs.WCWrite)
	want := append(bytes.Clone(local.bytes[:10000]), local.bytes[20000:40000]...)
	if !bytes.Equal(remote.bytes[5:30005], want) || remote.bytes[4] != 0 || remote.bytes[30005] != 0 {
		t.Error("other bytes were written, or elsewhere")
	}
	clear(local.bytes)
	a.posts(verbs.SendWR{ID: 2, Op: verbs.OpRead, Flags: verbs.Signaled, RemoteAddr: remote.addr + 5, RKey: remote.Remote}, local.sge(100, 30000))
	if wc := r.done(a.send, 2, verbs.WCRead); wc.QPNum != a.num {
		t.Errorf("it is of queue pair %d, not of %d", wc.QPNum, a.num)
	}
	if !bytes.Equal(local.bytes[100:30100], want) || local.bytes[99] != 0 || local.bytes[30100] != 0 {
		t.Error("other bytes were read")
	}
}

func TestSendAndImmediate(t *testing.T) {
	r := newRig(t)
	a, b := r.pair(common)
	local, remote := r.region(4096, all), r.region(4096, all)
	fill(local.bytes, 9)
	b.receives(10, remote.sge(0, 100), remote.sge(1000, 200))
	b.receives(11, remote.sge(2000, 8))
	b.receives(12)
	a.posts(verbs.SendWR{ID: 1, Op: verbs.OpSend}, local.sge(0, 150)) // makes no completion
	a.posts(verbs.SendWR{ID: 2, Op: verbs.OpSendImm, Imm: 0x01020304, Flags: verbs.Signaled}, local.sge(0, 8))
	a.posts(verbs.SendWR{ID: 3, Op: verbs.OpWriteImm, Imm: 0xfffefdfc, Flags: verbs.Signaled, RemoteAddr: remote.addr + 3000, RKey: remote.Remote}, local.sge(0, 64))
	r.done(a.send, 2, verbs.WCSend)
	r.done(a.send, 3, verbs.WCWrite)
	if wc := r.done(b.recv, 10, verbs.WCRecv); wc.Bytes != 150 || wc.HasImm {
		t.Errorf("%+v", wc)
	}
	if wc := r.done(b.recv, 11, verbs.WCRecv); wc.Bytes != 8 || !wc.HasImm || wc.Imm != 0x01020304 {
		t.Errorf("%+v", wc)
	}
	if wc := r.done(b.recv, 12, verbs.WCRecvWriteImm); wc.Bytes != 64 || !wc.HasImm || wc.Imm != 0xfffefdfc || wc.QPNum != b.num {
		t.Errorf("%+v", wc)
	}
	if !bytes.Equal(remote.bytes[:100], local.bytes[:100]) || !bytes.Equal(remote.bytes[1000:1050], local.bytes[100:150]) ||
		!bytes.Equal(remote.bytes[3000:3064], local.bytes[:64]) {
		t.Error("other bytes")
	}
	r.none(a.send)
}

func TestAtomics(t *testing.T) {
	r := newRig(t)
	if attr, err := r.ctx.Query(); err != nil || attr.AtomicCap == verbs.AtomicNone {
		t.Skip("the device has no atomics: ", err)
	}
	a, _ := r.pair(common)
	local, remote := r.region(4096, all), r.region(4096, all)
	was := func() uint64 { return binary.NativeEndian.Uint64(local.bytes) }
	is := func() uint64 { return binary.NativeEndian.Uint64(remote.bytes[8:]) }
	binary.NativeEndian.PutUint64(remote.bytes[8:], 1<<40)
	a.posts(verbs.SendWR{ID: 1, Op: verbs.OpFetchAdd, Flags: verbs.Signaled, RemoteAddr: remote.addr + 8, RKey: remote.Remote, CompareAdd: 5}, local.sge(0, 8))
	r.done(a.send, 1, verbs.WCFetchAdd)
	if was() != 1<<40 || is() != 1<<40+5 {
		t.Errorf("fetch-add: %#x, then %#x", was(), is())
	}
	for i, swap := range []verbs.SendWR{{CompareAdd: 1<<40 + 5, Swap: 77}, {CompareAdd: 1, Swap: 2}} {
		swap.ID, swap.Op, swap.Flags, swap.RemoteAddr, swap.RKey = uint64(i), verbs.OpCompareSwap, verbs.Signaled, remote.addr+8, remote.Remote
		before := is()
		a.posts(swap, local.sge(0, 8))
		r.done(a.send, uint64(i), verbs.WCCompareSwap)
		if was() != before || is() != 77 {
			t.Errorf("compare-swap %d: %#x, then %#x", i, was(), is())
		}
	}
}

// TestInline: the bytes are those at the time of the post, and need no registration.
func TestInline(t *testing.T) {
	r := newRig(t)
	a, _ := r.pair(common)
	if a.got.Inline < common.Inline {
		t.Fatalf("granted %+v", a.got)
	}
	remote := r.region(4096, all)
	b, addr := memory(t, 4096)
	fill(b, 1)
	want := bytes.Clone(b[:32])
	a.posts(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signaled | verbs.Inline, RemoteAddr: remote.addr, RKey: remote.Remote}, verbs.SGE{Addr: addr, Len: 32})
	clear(b)
	r.done(a.send, 1, verbs.WCWrite)
	if !bytes.Equal(remote.bytes[:32], want) {
		t.Error("other bytes")
	}
}

// TestAnotherAddress: peers name a region from its iova on.
func TestAnotherAddress(t *testing.T) {
	r := newRig(t)
	a, _ := r.pair(common)
	local := r.region(4096, all)
	b, addr := memory(t, 1<<16)
	mr, keys, err := r.pd.RegMR(addr, 1<<16, 0x1000, all)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	r.ok(err)
	r.closes(mr)
	fill(local.bytes, 5)
	a.posts(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: 0x1000 + 100, RKey: keys.Remote}, local.sge(0, 4096))
	r.done(a.send, 1, verbs.WCWrite)
	if !bytes.Equal(b[100:4196], local.bytes) {
		t.Error("other bytes")
	}
}

// TestManyAtOnce: batches longer than a chain, and polls longer than a batch.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t)
	in := common
	in.SendWR = 200
	a, b := r.pair(in)
	local, remote := r.region(1<<14, all), r.region(1<<14, all)
	fill(local.bytes, 2)
	const n = 150
	wrs, sges := make([]verbs.SendWR, n), make([]verbs.SGE, 2*n)
	for i := range wrs {
		sges[2*i], sges[2*i+1] = local.sge(64*i, 32), local.sge(64*i+32, 32)
		wrs[i] = verbs.SendWR{ID: uint64(i), Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: remote.addr + uint64(64*i), RKey: remote.Remote, First: uint32(2 * i), Count: 2}
	}
	if took, err := a.PostSend(wrs, sges); took != n || err != nil {
		t.Fatal(took, err)
	}
	for i, wc := range r.wait(a.send, n) {
		if wc.ID != uint64(i) || wc.Status != verbs.StatusSuccess {
			t.Fatalf("number %d is %+v", i, wc)
		}
	}
	if !bytes.Equal(remote.bytes[:64*n], local.bytes[:64*n]) {
		t.Error("other bytes")
	}
	recvs := make([]verbs.RecvWR, 100)
	if took, err := b.PostRecv(recvs, nil); took != len(recvs) || err != nil {
		t.Error(took, err)
	}
}

// TestFullQueue: without a receive at the peer sends stay, and the queue is full at some time.
func TestFullQueue(t *testing.T) {
	r := newRig(t)
	in := common
	in.SendWR, in.RecvWR = 16, 16
	a, b := r.pair(in)
	local := r.region(4096, all)
	// A device may have more places than it grants: soft-RoCE grants 16 and has 31.
	wrs, sges := make([]verbs.SendWR, 4*a.got.SendWR), []verbs.SGE{local.sge(0, 16)}
	for i := range wrs {
		wrs[i] = verbs.SendWR{ID: uint64(i), Op: verbs.OpSend, Flags: verbs.Signaled, Count: 1}
	}
	took, err := a.PostSend(wrs, sges)
	if took < a.got.SendWR || a.got.SendWR < in.SendWR || took == len(wrs) || !errors.Is(err, syscall.ENOMEM) {
		t.Fatalf("%d of %d were taken by a queue of %d: %v", took, len(wrs), a.got.SendWR, err)
	}
	for i := range took {
		b.receives(uint64(i), local.sge(1024, 16))
		r.done(b.recv, uint64(i), verbs.WCRecv)
	}
	for i := range took {
		r.done(a.send, uint64(i), verbs.WCSend)
	}
	if n, err := a.PostSend(wrs[:1], sges); n != 1 || err != nil {
		t.Errorf("a queue that has emptied took %d: %v", n, err)
	}
}

// TestBadRequests: what names SGEs that are not there, or an op that is none, is refused and harms
// nothing before it.
func TestBadRequests(t *testing.T) {
	r := newRig(t)
	a, b := r.pair(common)
	local, remote := r.region(4096, all), r.region(4096, all)
	sges := []verbs.SGE{local.sge(0, 8)}
	good := verbs.SendWR{ID: 7, Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: remote.addr, RKey: remote.Remote, Count: 1}
	for _, change := range []func(*verbs.SendWR){
		func(w *verbs.SendWR) { w.Count = 2 },
		func(w *verbs.SendWR) { w.First = 1 },
		func(w *verbs.SendWR) { w.First, w.Count = ^uint32(0), 2 },
		func(w *verbs.SendWR) { w.Op = 200 },
	} {
		bad := good
		change(&bad)
		if n, err := a.PostSend([]verbs.SendWR{good, bad, good}, sges); n != 1 || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %d were taken: %v", bad, n, err)
		}
		r.done(a.send, 7, verbs.WCWrite)
	}
	if n, err := b.PostRecv([]verbs.RecvWR{{Count: 1}, {First: 2}}, sges); n != 1 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%d were taken: %v", n, err)
	}
	if n, err := a.PostSend(nil, nil); n != 0 || err != nil {
		t.Error(n, err)
	}
	r.none(a.send)
}
