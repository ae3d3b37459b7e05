// SPDX-License-Identifier: MIT

package nic

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"mori/native/abi"
)

var small = Grid{Blocks: 2, Threads: 2 * WarpThreads}

// TestKernelsTakeTheirArguments: the C++ side compares sizes with its structs before it runs
// anything.
func TestKernelsTakeTheirArguments(t *testing.T) {
	queue := addrOf(memory(t, abi.NICQueueBytes)) // all zeros: nothing may be posted to it, and nothing is
	for _, a := range []Args{
		Interchange{Queue: queue}, Verify{}, PingPong{Queue: queue}, Post{Queue: queue},
	} {
		if out, err := Run(small, a); err != nil || out.Err() != nil || out.Done != 0 {
			t.Errorf("%s without anything to do: %v, %+v", a.Kernel(), err, out)
		}
	}
}

func TestVerifyCounts(t *testing.T) {
	b := memory(t, 1000)
	for i := range b {
		b[i] = 42
	}
	b[0], b[777] = 41, 43
	for _, g := range []Grid{{1, 4}, small, {5, 12}} {
		out, err := Run(g, Verify{Memory: addrOf(b), Bytes: 1000, Value: 42})
		if err != nil || out.Wrong != 2 {
			t.Errorf("on %+v: %d wrong bytes, want 2 (%v)", g, out.Wrong, err)
		}
	}
}

func TestGridsThatAreRefused(t *testing.T) {
	for _, g := range []Grid{{}, {1, 3}, {0, 4}, {1, 260}, {65, 4}, {1 << 31, 4}} {
		if _, err := Run(g, Verify{}); !errors.Is(err, ErrGrid) {
			t.Errorf("%+v: %v, want ErrGrid", g, err)
		}
	}
}

type unknown struct{ Verify }

func (unknown) Kernel() string { return "mori_nic_nothing" }

type short struct{ Verify }

func (short) Append(b []byte) []byte { return append(b, 0) }

func TestWhatIsNoKernel(t *testing.T) {
	for _, a := range []Args{unknown{}, short{}} {
		if _, err := Run(small, a); err == nil {
			t.Errorf("%T ran", a)
		}
	}
}

// TestNobodyAnswers: a queue whose NIC does nothing ends the kernel by its limit.
func TestNobodyAnswers(t *testing.T) {
	rings := memory(t, 4096)
	base := addrOf(rings)
	for i := 1024 + 63; i < 2048; i += 64 {
		rings[i] = 0xf0 // no completion
	}
	view := memory(t, abi.NICQueueBytes)
	copy(view, abi.Bytes(&abi.NICQueue{
		SQ: base, DBR: base + 2048, CQ: base + 1024, CQDBR: base + 2056, UAR: base + 2064, SQLog: 4, CQLog: 4,
		QPN: 0x123456, Provider: uint32(abi.NICProviderMLX5), Kept: base + 3072,
	}))
	out, err := Run(Grid{1, 4}, Interchange{
		Queue: addrOf(view), Limit: 20 * time.Millisecond, Mine: abi.NICMemory{Addr: base + 3584, Bytes: 64, LKey: 1}, Bytes: 16, Rounds: 3, Value: 42, Rank: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(out.Err(), ErrTimedOut) || out.Done != 0 || out.Report.Rank != 1 || out.Report.Expected != 1 {
		t.Errorf("the outcome is %+v: %v", out, out.Err())
	}
	if !strings.Contains(out.Err().Error(), "rank 1 waited at 0x") {
		t.Errorf("the error does not tell for what: %v", out.Err())
	}
	// The entry, the record and the doorbell are there all the same.
	if got := binary.BigEndian.Uint64(rings); got != 0x00000008_12345603 {
		t.Errorf("the entry begins with %#016x", got)
	}
	if got := binary.BigEndian.Uint64(rings[2048:]); got != 1 {
		t.Errorf("the doorbell records are %#016x", got)
	}
	if got := binary.BigEndian.Uint64(rings[2064:]); got != 0x00000100_12345600 {
		t.Errorf("the doorbell is %#016x", got)
	}
	for i, b := range rings[3584:3600] {
		if b != 40 {
			t.Errorf("byte %d is %d after the first of three rounds, want 40", i, b)
		}
	}
}

func TestStatusErr(t *testing.T) {
	for status, want := range map[uint64]error{
		abi.NICOK: nil, abi.NICStalled: ErrStalled, abi.NICTimedOut: ErrTimedOut, abi.NICRefused: ErrRefused, 0x7713: ErrCompletion, 5: ErrCompletion,
	} {
		if err := StatusErr(status); !errors.Is(err, want) {
			t.Errorf("status %#x is %v, want %v", status, err, want)
		}
	}
	if err := StatusErr(1 << 40); err == nil {
		t.Error("an unknown status is no error")
	}
}
