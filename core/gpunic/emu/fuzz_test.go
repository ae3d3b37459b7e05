// SPDX-License-Identifier: MIT

package emu

import (
	"runtime"
	"testing"

	"mori/core/decode/decodetest"
	"mori/core/gpunic/emu/memory"
	"mori/core/gpunic/emu/wire"
	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
)

// FuzzCommands: a NIC takes any bytes for commands; whatever they make can be undone by closing it.
func FuzzCommands(f *testing.F) {
	f.Add(mlx5.Encode(&mlx5.Simple{Op: mlx5.OpAllocPD}), mlx5.Encode(&mlx5.Simple{Op: mlx5.OpDeallocPD, ID: 0x41}))
	f.Add(mlx5.Encode(&mlx5.CreateCQ{Op: mlx5.OpCreateCQ, UmemID: 0x41, UmemValid: true}), mlx5.Encode(&mlx5.QueryHCACap{Op: mlx5.OpQueryHCACap}))
	f.Add(mlx5.Encode(&mlx5.CreateQP{Op: mlx5.OpCreateQP}), mlx5.Encode(&mlx5.ModifyQP{Op: mlx5.OpRst2Init, QPN: 0x41}))
	f.Add(mlx5.Encode(&mlx5.CreateMKey{Op: mlx5.OpCreateMKey, UmemID: 0x41, UmemValid: true, Bytes: 1, PD: 0x42}), []byte{})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		n, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		if _, err := n.Umem(1<<40, 1<<20); err != nil { // nothing is there; only work would touch it
			t.Fatal(err)
		}
		for _, in := range [][]byte{a, b, a} {
			out := make([]byte, 512)
			decodetest.Bounded(t, len(in), func() {
				if err := n.Do(in, out); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// FuzzPackets: a connected queue pair takes packets that say anything.
func FuzzPackets(f *testing.F) {
	f.Add([]byte{wire.KindWrite, wire.FlagFirst | wire.FlagLast, 0, 0}, uint32(0), uint64(0), uint64(10), uint32(1))
	f.Add([]byte{wire.KindAck, 0, wire.NakAccess, 0}, uint32(0), uint64(0), uint64(0), uint32(0))
	f.Add([]byte{wire.KindReadReply, 0, 0, 0}, uint32(5), uint64(0), uint64(0), uint32(0))
	f.Fuzz(func(t *testing.T, head []byte, seq uint32, addr, length uint64, key uint32) {
		if len(head) < 4 {
			return
		}
		p := wire.Packet{Kind: head[0], Flag: head[1], Ack: head[2], Code: head[3], From: 9, To: 1, Seq: seq & wire.SeqMask, Addr: addr, Key: key,
			Length: length, Data: head[4:], Atomic: mlx5.Atomic{Width: 8}}
		var parsed wire.Packet
		b := p.Append(nil)
		var err error
		decodetest.Bounded(t, len(b), func() { err = parsed.Parse(b) })
		if err != nil {
			return
		}
		shared := &common{opts: Options{MTU: 4096}, family: mlx5Family{}}
		port := &port{common: shared, wire: wire.Loop{}}
		words := make([]byte, 8)
		at := memory.Record{Mem: memory.Host{}, Addr: sys.AddrOf(words)}
		c := &cq{common: shared, mem: memory.Host{}, record: at}
		ctx := mlx5.QPContext{RemoteQPN: 9, MTU: 5, LogMsgMax: 30, PD: 1, RQType: mlx5.RQNone, RemoteRead: true, RemoteWrite: true, RemoteAtom: true}
		q := newQP(end{common: shared, Domain: memory.Domain{Regions: memory.Regions{}, PD: 1}, port: port, num: 1, ctx: ctx}, c, c)
		q.ring.mem, q.ring.record, q.in.receives.record = memory.Host{}, at, at
		q.ctx.State = mlx5.StateRTS
		n := newFirmware(shared, port)
		n.qps[1], n.order = q, []*qp{q}
		decodetest.Bounded(t, len(b), func() {
			for range 3 {
				n.dispatch(&parsed)
				q.in.serve()
			}
		})
		runtime.KeepAlive(words)
	})
}
