// SPDX-License-Identifier: MIT

package emu

import (
	"testing"
	"time"

	"mori/core/gpunic/emu/wire"
	"mori/core/gpunic/mlx5"
)

// sent is a window whose entries have as many packets, all of them sent; reads are less than 0.
func sent(first uint32, packets ...int) *window {
	w := &window{nextSeq: first, acked: first}
	for _, n := range packets {
		e := &entry{Entry: mlx5.Entry{Control: mlx5.Control{Opcode: mlx5.OpWrite}}}
		if n < 0 {
			e.Opcode, n = mlx5.OpRead, -n
		}
		w.add(e)
		w.number(e, n)
		e.sent = n
	}
	return w
}

func TestAcknowledgements(t *testing.T) {
	const first = wire.SeqMask - 2 // numbers wrap
	w := sent(first, 2, 3, -4, 1)
	if progress, hole := w.acknowledge(first + 4); !progress || hole != nil || !w.entries[0].done || w.entries[1].done {
		t.Errorf("in the second entry: %v, %v", progress, hole)
	}
	if progress, _ := w.acknowledge(first + 4); progress {
		t.Error("the same acknowledgement was new twice")
	}
	// The last entry was acknowledged, so the answer to the read before it was lost.
	if progress, hole := w.acknowledge(first + 10); !progress || hole != w.entries[2] || w.entries[3].done {
		t.Errorf("behind a read: %v, %v", progress, hole)
	}
	if want := uint32(first+5) & wire.SeqMask; w.acked != want {
		t.Errorf("acknowledged up to %#x, want %#x", w.acked, want)
	}
}

func TestRewind(t *testing.T) {
	w := sent(100, 2, 3, -4)
	if e := w.current(); e != nil {
		t.Fatalf("an entry is to be sent: %+v", e)
	}
	if !w.rewind(103) || w.current() != w.entries[1] || w.entries[1].sent != 1 || w.entries[2].sent != 0 || w.entries[0].sent != 2 {
		t.Errorf("window %+v", w)
	}
	if w.rewind(99) || w.rewind(109) {
		t.Error("a number of no entry was found")
	}
}

func TestRetriesEnd(t *testing.T) {
	ctx := &mlx5.QPContext{RetryCount: 2, RNRRetry: 1}
	ctx.Path.AckTimeout = 10
	var timer retryTimer
	timer.refill(ctx)
	now := time.Now()
	timer.start(now, ctx)
	if timer.due(now) {
		t.Error("due at once")
	}
	for i, want := range []bool{true, true, false} {
		now = now.Add(2 * ackTimeout(ctx))
		if !timer.due(now) || timer.again(now, ctx) != want {
			t.Errorf("retry %d: want %v", i, want)
		}
	}
	if !timer.notReady(now, 1, ctx) || timer.notReady(now, 1, ctx) {
		t.Error("one RNR retry is not one")
	}
	if timer.refill(ctx); !timer.notReady(now, 1, ctx) {
		t.Error("progress did not give back the retry")
	}
}
