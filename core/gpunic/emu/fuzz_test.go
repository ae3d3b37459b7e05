// SPDX-License-Identifier: MIT

package emu

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"runtime"
	"testing"

	"mori/core/decode/decodetest"
	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
)

// FuzzPacket: bytes from a wire are refused or read, and what was read is written as it came.
func FuzzPacket(f *testing.F) {
	for _, p := range []packet{
		{kind: kindWrite, flag: flagFirst | flagLast | flagAckReq, from: 1, to: 2, seq: 3, addr: 4, key: 5, length: 6, data: []byte("write!")},
		{kind: kindAtomic, seq: 7, atomic: mlx5.Atomic{Width: 8, Swap: 1, Compare: 2, SwapMask: 3, CompareMsk: 4}},
		{kind: kindAck, ack: nakRNR, code: 12, seq: seqMask},
	} {
		b := p.append(nil)
		f.Add(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p packet
		var err error
		decodetest.Bounded(t, len(b), func() { p, err = readPacket(bytes.NewReader(b)) })
		if err != nil {
			return
		}
		var again packet
		if err := again.parse(p.append(nil)); err != nil || !bytes.Equal(again.data, p.data) {
			t.Fatalf("%+v came back as %+v: %v", p, again, err)
		}
		if p.data, again.data = nil, nil; !reflect.DeepEqual(p, again) {
			t.Fatalf("%+v came back as %+v", p, again)
		}
	})
}

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
	f.Add([]byte{kindWrite, flagFirst | flagLast, 0, 0}, uint32(0), uint64(0), uint64(10), uint32(1))
	f.Add([]byte{kindAck, 0, nakAccess, 0}, uint32(0), uint64(0), uint64(0), uint32(0))
	f.Add([]byte{kindReadReply, 0, 0, 0}, uint32(5), uint64(0), uint64(0), uint32(0))
	f.Fuzz(func(t *testing.T, head []byte, seq uint32, addr, length uint64, key uint32) {
		if len(head) < 4 {
			return
		}
		p := packet{kind: head[0], flag: head[1], ack: head[2], code: head[3], from: 9, to: 1, seq: seq & seqMask, addr: addr, key: key, length: length}
		p.data, p.atomic.Width = head[4:], 8
		var parsed packet
		b := p.append(nil)
		var err error
		decodetest.Bounded(t, len(b), func() { err = parsed.parse(b) })
		if err != nil {
			return
		}
		n := &NIC{opts: Options{MTU: 4096}, wire: loop{}, pds: map[uint32]int{1: 0}, mkeys: map[uint32]*mkey{}, qps: map[uint32]*qp{}}
		c := &cq{nic: n, mem: hostMemory{}, dbrMem: hostMemory{}}
		record := make([]byte, 8)
		q := &qp{nic: n, num: 1, scq: c, rcq: c, work: &umem{mem: hostMemory{}}, dbrMem: hostMemory{}, dbr: sys.AddrOf(record)}
		q.ctx = mlx5.QPContext{State: mlx5.StateRTS, RemoteQPN: 9, MTU: 5, LogMsgMax: 30, PD: 1, RQType: mlx5.RQNone, RemoteRead: true, RemoteWrite: true, RemoteAtom: true}
		n.qps[1], n.order = q, []*qp{q}
		decodetest.Bounded(t, len(b), func() {
			for range 3 {
				n.dispatch(parsed)
				q.serve()
			}
		})
		runtime.KeepAlive(record)
	})
}
