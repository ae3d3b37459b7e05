// SPDX-License-Identifier: MIT

package emu_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"mori/core/gpunic/emu"
	"mori/core/gpunic/mlx5"
)

const signalled = mlx5.FlagSignalled

var wires = []string{"loop", "unix", "tcp"}

// TestOps does one of each kind on each wire.
func TestOps(t *testing.T) {
	for _, wire := range wires {
		t.Run(wire, func(t *testing.T) {
			a, b := pair(t, setup{opts: emu.Options{Wire: wire}, queue: mlx5.QueueConfig{SQLog: 4, RQLog: 3}})
			for i := range a.Mem {
				a.Mem[i] = byte(i*7 + i>>8)
			}
			step := func(at uint64, err error) {
				t.Helper()
				if err == nil {
					err = a.post.Until(at+1, patience)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			step(a.post.Write(a.Span(0, 10000), b.Span(100, 0), signalled))
			if !bytes.Equal(a.Mem[:10000], b.Mem[100:10100]) {
				t.Error("write: other bytes came")
			}
			step(a.post.WriteInline([]byte("inline data of some length, more than one block can have: it is as long as this"), b.Span(20000, 0), signalled))
			if !bytes.HasPrefix(b.Mem[20000:], []byte("inline data of some length, more than one block can have: it is as long as this\x00")) {
				t.Errorf("inline: %q", b.Mem[20000:20090])
			}
			step(a.post.Read(b.Span(100, 0), a.Span(30000, 9000), signalled))
			if !bytes.Equal(a.Mem[30000:39000], b.Mem[100:9100]) {
				t.Error("read: other bytes came")
			}
			binary.LittleEndian.PutUint64(b.Mem[40000:], 5)
			step(a.post.Atomic(mlx5.OpFetchAdd, mlx5.Atomic{Width: 8, Swap: 7}, b.Span(40000, 8), a.Span(40000, 8), signalled))
			step(a.post.Atomic(mlx5.OpCompareSwap, mlx5.Atomic{Width: 8, Swap: 99, Compare: 12}, b.Span(40000, 8), a.Span(40008, 8), signalled))
			if x, y, z := binary.LittleEndian.Uint64(a.Mem[40000:]), binary.LittleEndian.Uint64(a.Mem[40008:]),
				binary.LittleEndian.Uint64(b.Mem[40000:]); x != 5 || y != 12 || z != 99 {
				t.Errorf("atomics: %d, %d, %d, want 5, 12, 99", x, y, z)
			}
			if err := b.recv.Post(b.Span(50000, 1000), b.Span(52000, 8000)); err != nil {
				t.Fatal(err)
			}
			imm := uint32(0xfeed)
			step(a.post.Send(&imm, signalled, a.Span(0, 4000), a.Span(8000, 1000)))
			c, err := b.recv.Next(patience)
			if err != nil || c.Opcode != mlx5.CQERecvSendImm || c.Imm != imm || c.Bytes != 5000 {
				t.Errorf("receive: %+v, %v", c, err)
			}
			if !bytes.Equal(b.Mem[50000:51000], a.Mem[:1000]) || !bytes.Equal(b.Mem[52000:55000], a.Mem[1000:4000]) ||
				!bytes.Equal(b.Mem[55000:56000], a.Mem[8000:9000]) {
				t.Error("receive: other bytes came")
			}
			clean(t, a, b)
		})
	}
}
