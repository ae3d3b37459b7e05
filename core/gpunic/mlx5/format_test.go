// SPDX-License-Identifier: MIT

package mlx5

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"mori/core/gpunic/internal/formattest"
)

// TestGoldenSegments has bytes that were worked out by hand.
func TestGoldenSegments(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(b []byte)
		want string
	}{
		{"control of a signalled write", func(b []byte) {
			Control{Opcode: OpWrite, Index: 0x1234, QPN: 0xabcdef, Segments: 3, Flags: FlagSignalled}.Put(b)
		}, "00123408 abcdef03 00000008 00000000"},
		{"control of a masked add of 4 bytes", func(b []byte) {
			Control{Opcode: OpMaskedAdd, OpMod: OpModMasked4, Index: 0xffff, QPN: 1, Segments: 4, Flags: FlagFence}.Put(b)
		}, "08ffff15 00000104 00000080 00000000"},
		{"remote", func(b []byte) { Remote{Addr: 0x1122334455667788, Key: 0x99aabbcc}.Put(b) }, "1122334455667788 99aabbcc 00000000"},
		{"data", func(b []byte) { Data{Bytes: 0x400, Key: 0x5a, Addr: 0x7f0011223344}.Put(b) }, "00000400 0000005a 00007f0011223344"},
		{"inline", func(b []byte) { PutInline(b, []byte("hello")) }, "80000005 68656c6c6f 00000000000000"},
		{"fetch and add", func(b []byte) { Atomic{Width: 8, Swap: 7}.Put(b, OpFetchAdd) }, "0000000000000007 0000000000000000"},
		{"masked swap of 4 bytes", func(b []byte) {
			Atomic{Width: 4, Swap: 1, Compare: 2, SwapMask: 3, CompareMsk: 4}.Put(b, OpMaskedSwap)
		}, "00000001 00000002 00000003 00000004"},
		{"masked swap of 8 bytes", func(b []byte) {
			Atomic{Width: 8, Swap: 1, Compare: 2, SwapMask: 3, CompareMsk: 4}.Put(b, OpMaskedSwap)
		}, "0000000000000001 0000000000000002 0000000000000003 0000000000000004"},
		{"masked add of 8 bytes", func(b []byte) { Atomic{Width: 8, Swap: 1, SwapMask: 2}.Put(b, OpMaskedAdd) }, "0000000000000001 0000000000000002"},
	} {
		want := formattest.Unhex(c.want)
		got := bytes.Repeat([]byte{0xee}, len(want)+1)
		got[len(want)] = 0xee
		c.put(got)
		if !bytes.Equal(got[:len(want)], want) || got[len(want)] != 0xee {
			t.Errorf("%s: %x, want %x", c.name, got, want)
		}
	}
}

func TestGoldenCompletions(t *testing.T) {
	b := make([]byte, CQEBytes)
	(&CQE{Opcode: CQEReqError, Syndrome: SyndromeRemoteAccess, Vendor: 0x88, WQEOpcode: OpWrite, QPN: 0x4b, Counter: 0x102, Owner: 1}).Put(b)
	if want := formattest.Unhex("0000 0000 0000 8813 0800004b 0102 00 d1"); !bytes.Equal(b[48:], want) {
		t.Errorf("error: %x, want %x", b[48:], want)
	}
	(&CQE{Opcode: CQERecvImm, Imm: 0x01020304, Bytes: 0x500, QPN: 0x4b, Counter: 3}).Put(b)
	if want := formattest.Unhex("01020304 00000000 00000500 0000000000000000 0000004b 0003 00 10"); !bytes.Equal(b[36:], want) {
		t.Errorf("receive: %x, want %x", b[36:], want)
	}
	for _, c := range []struct {
		last     byte
		consumer uint64
		want     bool
	}{{0xf0, 0, false}, {0x00, 0, true}, {0x01, 0, false}, {0x01, 8, true}, {0x00, 8, false}, {0xd0, 16, true}} {
		if got := Ready(c.last, c.consumer, 3); got != c.want {
			t.Errorf("last byte %#x for entry %d of a ring of 8: ready %v", c.last, c.consumer, got)
		}
	}
}

// TestGoldenCommands names the places of fields by bytes, as the PRM's tables have them, and not by
// the tables of the code.
func TestGoldenCommands(t *testing.T) {
	qp := Encode(&CreateQP{Op: OpCreateQP, UmemID: 0x11223344, UmemValid: true, UmemOffset: 0x1000, QPC: QPContext{
		PathState: PathMigrated, PD: 0x123456, LogSQSize: 6, LogRQSize: 4, LogRQStride: 1, UARPage: 0x77, SendCQN: 0x88, RecvCQN: 0x99,
		DBRAddr: 0x40, DBRUmemValid: true, DBRUmemID: 0xaa, RQType: RQNone, SendDBRMode: DBRNone, TimestampFormat: NoTimestamp,
	}})
	cq := Encode(&CreateCQ{Op: OpCreateCQ, LogSize: 5, UARPage: 0x77, EQN: 9, UmemID: 3, UmemValid: true, DBRUmemValid: true, DBRUmemID: 4, DBRAddr: 0x80,
		Collapsed: true, IgnoreOverrun: true})
	mkey := Encode(&CreateMKey{Op: OpCreateMKey, UmemValid: true, UmemID: 5, LocalRead: true, LocalWrite: true, RemoteRead: true, RemoteWrite: true,
		Atomic: true, AccessMode: AccessModeMTT, QPN: AnyQPN, Variant: 0x5a, PD: 0x123456, Addr: 0x7000, Bytes: 0x3000, Translations: 2,
		TranslationsActual: 2, LogPageSize: 12})
	rts := Encode(&ModifyQP{Op: OpRTR2RTS, QPN: 0x123456, QPC: QPContext{
		PathState: PathMigrated, NextSendPSN: 0xabcdef, RetryCount: 7, RNRRetry: 6, LogSRAMax: 4, Path: Path{AckTimeout: 14},
	}})
	rtr := Encode(&ModifyQP{Op: OpInit2RTR, QPN: 1, QPC: QPContext{
		MTU: 5, LogMsgMax: 30, RemoteQPN: 0xfedcba, NextRecvPSN: 0x111111, MinRNRNak: 12, LogRRAMax: 4, RemoteRead: true, RemoteWrite: true,
		RemoteAtom: true, AtomicMode: AtomicUpTo8, Path: Path{Port: 1, GID: GID{0: 0xfe, 15: 0x01}, HopLimit: 64, UDPSourcePort: 0xc001, MACHigh16: 0x0102, MACLow32: 0x03040506},
	}})
	for _, c := range []struct {
		name string
		b    []byte
		at   int
		want string
	}{
		{"create_qp opcode", qp, 0, "0500 0000"}, {"qpc state, st, pm_state", qp, 24, "00001800"}, {"qpc pd", qp, 28, "00123456"},
		{"qpc sizes", qp, 32, "00213040"}, {"qpc uar", qp, 36, "00000077"}, {"qpc send_dbr_mode", qp, 40, "40000000"}, {"qpc cqn_snd", qp, 24 + 124, "00000088"},
		{"qpc cqn_rcv", qp, 24 + 156, "00000099"}, {"qpc dbr_addr", qp, 24 + 160, "0000000000000040"}, {"qpc rq_type", qp, 24 + 172, "03000000"},
		{"qpc dbr_umem_valid", qp, 24 + 208, "10000000"}, {"qpc dbr_umem_id", qp, 24 + 228, "000000aa"},
		{"wq_umem_offset, id, valid", qp, 256, "0000000000001000 11223344 80000000"},
		{"create_cq opcode", cq, 0, "0400"}, {"cqc flags", cq, 16, "02120000"}, {"cqc dbr_umem_id", cq, 20, "00000004"}, {"cqc size, uar", cq, 28, "05000077"},
		{"cqc eqn", cq, 36, "00000009"}, {"cqc dbr_addr", cq, 16 + 56, "0000000000000080"}, {"cq umem", cq, 80, "0000000000000000 00000003 80000000"},
		{"create_mkey opcode", mkey, 0, "0200"}, {"mkey_umem_valid", mkey, 12, "40000000"}, {"mkc access", mkey, 16, "00007d00"},
		{"mkc qpn, variant", mkey, 20, "ffffff5a"}, {"mkc pd", mkey, 28, "00123456"}, {"mkc start, len", mkey, 32, "0000000000007000 0000000000003000"},
		{"mkc translations", mkey, 16 + 52, "00000002 0000000c"}, {"octwords, umem id", mkey, 96, "00000002 00000005"},
		{"rtr2rts", rts, 0, "0504 0000 00000000 00123456"}, {"ack_timeout", rts, 24 + 24 + 8, "70000000"},
		{"qpc sra, retries", rts, 24 + 112, "0087c000"}, {"qpc next_send_psn", rts, 24 + 120, "00abcdef"},
		{"init2rtr mtu", rtr, 24 + 8, "be000000"}, {"remote_qpn", rtr, 24 + 20, "00fedcba"}, {"hop_limit", rtr, 24 + 24 + 8, "00000040"},
		{"rgid", rtr, 24 + 24 + 16, "fe000000000000000000000000000001"}, {"udp_sport", rtr, 24 + 24 + 32, "0000c001"},
		{"port, rmac", rtr, 24 + 24 + 36, "00010102 03040506"}, {"rra, atomic mode, rights", rtr, 24 + 144, "0083e000"},
		{"min_rnr_nak, next_rcv_psn", rtr, 24 + 148, "0c111111"},
	} {
		want := formattest.Unhex(c.want)
		if got := c.b[c.at : c.at+len(want)]; !bytes.Equal(got, want) {
			t.Errorf("%s at byte %d: %x, want %x", c.name, c.at, got, want)
		}
	}
}

// messages are all that have a format.
func messages() []Message {
	return []Message{&Simple{}, &Reply{}, &QueryHCACap{}, &Caps{}, &CreateMKey{}, &CreateCQ{}, &CreateQP{}, &ModifyQP{}, &QueryQPReply{}}
}

// TestFieldsDoNotOverlap: no two fields of a message share a bit, and all lie within it.
func TestFieldsDoNotOverlap(t *testing.T) {
	for _, m := range messages() {
		used := make([]bool, 8*m.size())
		for _, s := range m.slots() {
			if s.Bits < 64 && s.At%32+s.Bits > 32 || s.Bits >= 64 && s.At%32 != 0 {
				t.Errorf("%T: %d bits at %#x reach over words", m, s.Bits, s.At)
			}
			for i := s.At; i < s.At+s.Bits; i++ {
				if used[i] {
					t.Errorf("%T: bit %#x is in two fields", m, i)
				}
				used[i] = true
			}
		}
	}
}

// TestMessagesComeBack writes random values into each message and reads them again.
func TestMessagesComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, m := range messages() {
		for range 200 {
			for _, s := range m.slots() {
				switch v := s.value.(type) {
				case *uint32:
					*v = r.Uint32() & uint32(s.mask())
				case *uint64:
					*v = r.Uint64()
				case *bool:
					*v = r.IntN(2) == 0
				case *[16]byte:
					for i := range v {
						v[i] = byte(r.Uint32())
					}
				default:
					t.Fatalf("%T has a field of type %T", m, v)
				}
			}
			got := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
			if err := Decode(Encode(m), got); err != nil || !reflect.DeepEqual(m, got) {
				t.Fatalf("%+v came back as %+v: %v", m, got, err)
			}
		}
		if err := Decode(make([]byte, m.size()-1), m); !errors.Is(err, ErrFormat) {
			t.Errorf("%T of too few bytes: %v", m, err)
		}
	}
}

func TestRemoteEndComesBack(t *testing.T) {
	r := RemoteEnd{QPN: 1, PSN: 2, LID: 3, MTU: 4096, GID: GID{5, 6}, MAC: [6]byte{7, 8}}
	b := make([]byte, RemoteEndBytes)
	r.Put(b)
	var got RemoteEnd
	if err := got.Parse(b); err != nil || got != r {
		t.Errorf("%+v came back as %+v: %v", r, got, err)
	}
	if err := got.Parse(b[1:]); !errors.Is(err, ErrFormat) {
		t.Errorf("too few bytes: %v", err)
	}
}
