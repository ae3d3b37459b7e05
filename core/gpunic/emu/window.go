// SPDX-License-Identifier: MIT

package emu

import (
	"time"

	"mori/core/gpunic/emu/wire"
	"mori/core/gpunic/mlx5"
)

// An entry is work of a send queue from its fetch to its completion. Each packet has its own
// sequence number, including those of the response to a read.
type entry struct {
	mlx5.Entry
	raw     []byte
	at      uint32 // count of blocks before it
	index   uint16
	blocks  int
	started bool
	first   uint32 // sequence number of its first packet
	packets int    // sequence numbers that it takes
	sent    int
	got     int  // packets of the response that have arrived
	again   bool // the response had a gap and was requested again
	done    bool
	fault   mlx5.Syndrome
	vendor  uint8
	inline  []byte // of the response, for the completion entry
}

func (e *entry) answers() bool { return e.Opcode == mlx5.OpRead || e.IsAtomic() }

// expects returns the sequence number of the next packet of the response.
func (e *entry) expects() uint32 { return (e.first + uint32(e.got)) & wire.SeqMask }

const (
	maxPackets = 128 // sent and not acknowledged
	maxEntries = 64  // fetched and not complete
)

// A window holds the entries of a send queue that were fetched and are not complete, in order. It
// tracks which of their packets were sent and acknowledged.
type window struct {
	entries []*entry
	sending int // index of the entry whose packets are sent next
	nextSeq uint32
	acked   uint32 // all before it have been acknowledged
}

func (w *window) full() bool { return len(w.entries) >= maxEntries }

func (w *window) add(e *entry) { w.entries = append(w.entries, e) }

// head returns the oldest entry, nil if there is none.
func (w *window) head() *entry {
	if len(w.entries) == 0 {
		return nil
	}
	return w.entries[0]
}

// pop removes the oldest entry.
func (w *window) pop() {
	w.entries = w.entries[1:]
	w.sending = max(w.sending-1, 0)
}

// current returns the entry whose packets are sent next, nil if all are sent.
func (w *window) current() *entry {
	for ; w.sending < len(w.entries); w.sending++ {
		if e := w.entries[w.sending]; e.fault != 0 || !e.started || !e.done && e.sent < e.packets {
			return e
		}
	}
	return nil
}

// unanswered returns the number of reads and atomics that were sent and have no response yet.
func (w *window) unanswered() (n int) {
	for _, e := range w.entries[:w.sending] {
		if e.answers() && !e.done {
			n++
		}
	}
	return n
}

// number assigns sequence numbers to an entry.
func (w *window) number(e *entry, packets int) {
	e.started, e.first, e.packets, e.done = true, w.nextSeq, packets, packets == 0
	w.nextSeq = (w.nextSeq + uint32(packets)) & wire.SeqMask
}

// find returns the index of the entry that has a sequence number, or -1.
func (w *window) find(seq uint32) int {
	for i, e := range w.entries {
		if e.started && e.packets > 0 && wire.After(seq, e.first) >= 0 && wire.After(seq, e.first) < e.packets {
			return i
		}
	}
	return -1
}

// rewind marks packets from a sequence number on for retransmission. It reports whether there are
// any.
func (w *window) rewind(seq uint32) bool {
	i := w.find(seq)
	if i < 0 {
		return false
	}
	w.sending = i
	for _, e := range w.entries[i:] {
		e.sent = 0
	}
	if e := w.entries[i]; !e.answers() {
		e.sent = wire.After(seq, e.first)
	}
	return true
}

// answered returns the oldest entry that waits for a response, or nil.
func (w *window) answered() *entry {
	for _, e := range w.entries {
		if e.started && e.answers() && !e.done && e.fault == 0 {
			return e
		}
	}
	return nil
}

// acknowledge records that all packets before next have arrived, and reports whether that is new.
// hole is an entry whose response was lost: later packets were acknowledged.
func (w *window) acknowledge(next uint32) (progress bool, hole *entry) {
	if next &= wire.SeqMask; wire.After(next, w.acked) <= 0 {
		return false, nil
	}
	for _, e := range w.entries {
		if !e.started || wire.After(next, e.first) <= 0 {
			break
		}
		if e.done {
			continue
		}
		if e.answers() {
			next, hole = e.expects(), e
			break
		}
		if wire.After(next, e.first+uint32(e.packets)) < 0 {
			break
		}
		e.done = true
	}
	if wire.After(next, w.acked) <= 0 {
		return false, hole
	}
	w.acked = next
	return true, hole
}

// clear returns and removes all entries.
func (w *window) clear() []*entry {
	all := w.entries
	w.entries, w.sending = nil, 0
	return all
}

// A retryTimer decides when and how often to retransmit packets without a response.
type retryTimer struct {
	deadline time.Time // of the response; none if zero
	nudge    time.Time // when to retransmit before that
	paused   time.Time // the peer is not ready until then
	retries  uint32
	rnr      uint32
}

// nudges is how often, within one retry timeout, unanswered packets are retransmitted without using
// up a retry. Real NICs do not do this. Here it compensates for busy machines, on which a thread
// waits longer than a network ever takes.
const nudges = 16

// forever is the RNR retry count that means no limit.
const forever = 7

// refill resets the retry count, since the peer responds, and stops the timer.
func (t *retryTimer) refill(ctx *mlx5.QPContext) {
	t.retries, t.rnr = ctx.RetryCount, ctx.RNRRetry
	t.deadline = time.Time{}
}

// start starts the timer, if the connection has a timeout.
func (t *retryTimer) start(now time.Time, ctx *mlx5.QPContext) {
	if ctx.Path.AckTimeout != 0 {
		t.deadline, t.nudge = now.Add(ackTimeout(ctx)), now.Add(ackTimeout(ctx)/nudges)
	}
}

func (t *retryTimer) stop() { t.deadline = time.Time{} }

// due reports whether packets must be retransmitted now.
func (t *retryTimer) due(now time.Time) bool { return !t.deadline.IsZero() && !now.Before(t.nudge) }

// again uses up a retry if its timeout is over. It returns false if no retry is left.
func (t *retryTimer) again(now time.Time, ctx *mlx5.QPContext) bool {
	if now.After(t.deadline) {
		if t.retries == 0 {
			return false
		}
		t.retries--
		t.start(now, ctx)
	}
	t.nudge = now.Add(ackTimeout(ctx) / nudges)
	return true
}

// notReady pauses for the time that the peer requests. It returns false if no retry is left.
func (t *retryTimer) notReady(now time.Time, code uint8, ctx *mlx5.QPContext) bool {
	if t.rnr == 0 {
		return false
	}
	if t.rnr != forever {
		t.rnr--
	}
	t.paused = now.Add(rnrTimer(code))
	t.start(t.paused, ctx)
	return true
}

func ackTimeout(ctx *mlx5.QPContext) time.Duration {
	return 4096 * time.Nanosecond << ctx.Path.AckTimeout
}

// rnrTimer returns the duration of a code in the InfiniBand specification's table of RNR NAK
// timers.
func rnrTimer(code uint8) time.Duration {
	const unit = 10 * time.Microsecond
	table := [...]time.Duration{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
		8192, 12288, 16384, 24576, 32768, 49152}
	return table[code&31] * unit
}
