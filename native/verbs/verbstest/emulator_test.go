// SPDX-License-Identifier: MIT

package verbstest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"mori/native/verbs"
)

// devices are the ways that a pair of queue pairs may go.
var devices = map[string][2]int{"one device": {0, 0}, "two devices": {0, 1}}

func onDevices(t *testing.T, f func(t *testing.T, from, to int)) {
	for name, d := range devices {
		t.Run(name, func(t *testing.T) { f(t, d[0], d[1]) })
	}
}

// noise fills bytes with what nothing else has.
func noise(b []byte) []byte {
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return bytes.Clone(b)
}

// TestWriteAndRead moves bytes of several sizes there and back, from and to pieces of memory.
func TestWriteAndRead(t *testing.T) {
	onDevices(t, func(t *testing.T, from, to int) {
		x := newTester(t, from, to, common)
		for _, n := range []int{0, 1, 7, 1024, 32768, 32769, 300001} {
			want := noise(x.a.buf[:n])
			third := n / 3
			x.ok(x.a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: x.b.Addr + 5, RKey: x.b.RKey},
				x.a.sge(0, third), x.a.sge(third, 0), x.a.sge(third, n-third)))
			x.ends(x.a.send, verbs.StatusSuccess)
			if !bytes.Equal(x.b.buf[5:5+n], want) {
				t.Fatalf("%d bytes were written wrong", n)
			}
			x.ok(x.a.post(verbs.SendWR{ID: 1, Op: verbs.OpRead, Flags: verbs.Signaled, RemoteAddr: x.b.Addr + 5, RKey: x.b.RKey},
				x.a.sge(500000, third), x.a.sge(600000, n-third)))
			if wc := x.ends(x.a.send, verbs.StatusSuccess)[0]; wc.Op != verbs.WCRead || int(wc.Bytes) != n {
				t.Errorf("the completion of a read of %d bytes is %+v", n, wc)
			}
			if !bytes.Equal(x.a.buf[500000:500000+third], want[:third]) || !bytes.Equal(x.a.buf[600000:600000+n-third], want[third:]) {
				t.Fatalf("%d bytes were read wrong", n)
			}
		}
	})
}

// TestSend sends messages to receives of their order, with and without immediate data.
func TestSend(t *testing.T) {
	onDevices(t, func(t *testing.T, from, to int) {
		x := newTester(t, from, to, common)
		for i := range 3 {
			x.ok(x.b.receive(uint64(i+1), x.b.sge(i*100000, 10), x.b.sge(i*100000+10, 80000)))
		}
		want := noise(x.a.buf[:70000])
		x.ok(x.a.post(verbs.SendWR{ID: 1, Op: verbs.OpSend, Flags: verbs.Signaled}, x.a.sge(0, 70000)))
		x.ok(x.a.post(verbs.SendWR{ID: 2, Op: verbs.OpSendImm, Flags: verbs.Signaled | verbs.Inline, Imm: 0x01020304}, x.a.sge(0, 20)))
		write := verbs.SendWR{ID: 3, Op: verbs.OpWriteImm, Flags: verbs.Signaled, Imm: 77, RemoteAddr: x.b.Addr + 900000, RKey: x.b.RKey}
		x.ok(x.a.post(write, x.a.sge(0, 5000)))
		for i, wc := range x.ends(x.a.send, verbs.StatusSuccess, verbs.StatusSuccess, verbs.StatusSuccess) {
			if wc.Op != []uint8{verbs.WCSend, verbs.WCSend, verbs.WCWrite}[i] {
				t.Errorf("send %d completes as %+v", i, wc)
			}
		}
		got := x.ends(x.b.recv, verbs.StatusSuccess, verbs.StatusSuccess, verbs.StatusSuccess)
		for i, w := range []verbs.WC{
			{Op: verbs.WCRecv, Bytes: 70000},
			{Op: verbs.WCRecv, Bytes: 20, Imm: 0x01020304, HasImm: true},
			{Op: verbs.WCRecvWriteImm, Bytes: 5000, Imm: 77, HasImm: true},
		} {
			if g := got[i]; g.Op != w.Op || g.Bytes != w.Bytes || g.HasImm != w.HasImm || (w.HasImm && g.Imm != w.Imm) {
				t.Errorf("receive %d is %+v, want %+v", i, g, w)
			}
		}
		if !bytes.Equal(x.b.buf[:70000], want) || !bytes.Equal(x.b.buf[100000:100020], want[:20]) || !bytes.Equal(x.b.buf[900000:905000], want[:5000]) {
			t.Error("wrong bytes came")
		}
	})
}

func word(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

func TestAtomics(t *testing.T) {
	x := newTester(t, 0, 0, common)
	binary.NativeEndian.PutUint64(x.b.buf, 40)
	for i, step := range []struct {
		wr           verbs.SendWR
		before, then uint64
	}{
		{verbs.SendWR{Op: verbs.OpFetchAdd, CompareAdd: 2}, 40, 42},
		{verbs.SendWR{Op: verbs.OpCompareSwap, CompareAdd: 41, Swap: 1}, 42, 42},
		{verbs.SendWR{Op: verbs.OpCompareSwap, CompareAdd: 42, Swap: 1}, 42, 1},
		{verbs.SendWR{Op: verbs.OpFetchAdd, CompareAdd: ^uint64(0)}, 1, 0},
	} {
		step.wr.ID, step.wr.Flags, step.wr.RemoteAddr, step.wr.RKey = 1, verbs.Signaled, x.b.Addr, x.b.RKey
		x.ok(x.a.post(step.wr, x.a.sge(8, 8)))
		x.ends(x.a.send, verbs.StatusSuccess)
		if before, then := word(x.a.buf[8:]), word(x.b.buf); before != step.before || then != step.then {
			t.Errorf("step %d: %d before and %d then, want %d and %d", i, before, then, step.before, step.then)
		}
	}
}

// TestUnsignaled: a success that nobody asked for makes no completion, and its slot comes free with
// the next one. Soft-RoCE frees it earlier, and other devices do not.
func TestUnsignaled(t *testing.T) {
	NeedEmulated(t)
	in := common
	in.SendWR = 4
	x := newTester(t, 0, 0, in)
	for round := range 5 {
		for i := range 4 {
			wr := verbs.SendWR{ID: 1, Op: verbs.OpWrite, RemoteAddr: x.b.Addr, RKey: x.b.RKey}
			if i == 3 {
				wr.Flags = verbs.Signaled
			}
			x.ok(x.a.post(wr, x.a.sge(0, 8)))
		}
		if err := x.a.post(verbs.SendWR{Op: verbs.OpWrite, RemoteAddr: x.b.Addr, RKey: x.b.RKey}, x.a.sge(0, 8)); err == nil {
			t.Fatalf("round %d: a full queue took one more", round)
		}
		x.ends(x.a.send, verbs.StatusSuccess)
	}
}
