// SPDX-License-Identifier: MIT

package transfer

import (
	"fmt"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/io/internal/batch"
	"mori/io/internal/meter"
)

// A Transfer is one submitted batch until it ends.
//
//	                        ┌──────── replay ────────┐
//	                        ▼                        │
//	submitting ─▶ moving (ops in flight) ─▶ orphaned (its path broke)
//	                        │                        │
//	                        └────────▶ ended ◀───────┘
//
// ops counts the unfinished ops on the present path. The goroutine that decrements it to zero
// decides how the transfer continues. Ops that succeeded are done. The others are replayed on the
// next path, unless the transfer has failed.
type Transfer struct {
	Status *Status

	pair    *Pair
	on      atomic.Pointer[Ledger] // of the present or last path
	uid     uint64
	kind    fabric.OpKind
	total   uint64
	batch   *batch.Batch
	to      batch.Target // the target that the ops of batch were made for
	slot    uint64       // Op.Ctx of the first op
	tag     string       // "" = none
	opsMade uint32       // before any replay
	load    int64        // its load against the limit on pending transfers
	silent  bool         // a notification: no caller waits for it, and it has no status
	notify  bool         // a separate notification follows the bytes
	gated   atomic.Bool  // it waits for a GPU and has not begun
	replays atomic.Int32 // how often it was moved to another path
	altered int32        // ops that were sent again; only the reaping goroutine accesses it

	ops   atomic.Int64
	limit time.Duration // 0 = none
	progress
	trouble

	// Guarded by Order.mu.
	next     *Transfer
	ended    bool
	reported bool
	success  string
}

// Params describes a transfer to submit.
type Params struct {
	Kind    fabric.OpKind
	UID     uint64
	Tag     string        // "" = none
	Start   time.Time     // see Now
	Limit   time.Duration // until the transfer fails; 0 = none
	Entries int
	Total   uint64        // bytes
	Batch   *batch.Batch  // the ops; owned by the transfer from now on
	To      *batch.Target // the target that they were made for
}

// Submit returns a transfer for the path of l, and gives it its place in the order. The caller has
// entered the local region of the pair. The transfer ends exactly once.
func (p *Pair) Submit(l *Ledger, q *Params) *Transfer {
	t := &Transfer{Status: newStarted(), pair: p, uid: q.UID, kind: q.Kind, total: q.Total, tag: q.Tag,
		to: *q.To, progress: progress{start: q.Start}, limit: q.Limit, load: load(q.Entries), batch: q.Batch,
		opsMade: uint32(len(q.Batch.Ops))}
	t.on.Store(l) // for reports before it starts
	t.Status.of.Store(t)
	l.Meter.Op(t.reads()).Enter()
	p.Pending.Order.add(t)
	return t
}

func (t *Transfer) reads() bool { return t.kind == fabric.OpRead }

// Pair returns the pair that t shares with the other transfers of its session.
func (t *Transfer) Pair() *Pair { return t.pair }

// UID is the caller's name of the transfer.
func (t *Transfer) UID() uint64 { return t.uid }

// Ops returns the ops of t on its present path.
func (t *Transfer) Ops() []fabric.Op { return t.batch.Ops }

// Path returns the present or last path.
func (t *Transfer) Path() Path { return t.on.Load().Path }

// Replays returns how often t was moved to another path because some of it was lost.
func (t *Transfer) Replays() int32 { return t.replays.Load() }

// Hold marks t as waiting for a GPU, or as not waiting any more.
func (t *Transfer) Hold(waits bool) { t.gated.Store(waits) }

// OpFailed records a failed op. It reports whether the path caused the failure.
func (t *Transfer) OpFailed(err error) (pathBroke bool) {
	if isPathError(err) {
		t.lose(err)
		return true
	}
	t.Fail(err)
	return false
}

// OpDone records that an op of n bytes succeeded.
func (t *Transfer) OpDone(op int, n uint64) {
	t.batch.Done[op] = true
	t.add(n)
	t.on.Load().Meter.Op(t.reads()).Moved(n)
}

// maxAltered is how many ops of a transfer are sent again before the transfer fails.
const maxAltered = 8

// OpAltered returns an op to send again because its bytes were altered in transit, and how often
// that has happened to t. If that was too often, it fails t and returns no op. Only one goroutine
// at a time may call it.
func (t *Transfer) OpAltered(op int) (again []fabric.Op, times int32) {
	if t.altered++; t.altered > maxAltered {
		t.Fail(fmt.Errorf("bytes were altered in transit %d times: %w", t.altered, fabric.ErrCRC))
		return nil, t.altered
	}
	return t.batch.Ops[op : op+1], t.altered
}

// OpsEnded counts n ended ops. It reports whether they were the last ones of t on its path.
func (t *Transfer) OpsEnded(n int64) bool { return t.ops.Add(-n) <= 0 }

// Undone reports whether t must be replayed: some of it was lost, and it has not failed.
func (t *Transfer) Undone() bool { return t.Failure() == nil && t.Loss() != nil }

// Prepare returns the ops of t for a path. notifies says whether the peer takes notifications.
func (t *Transfer) Prepare(notifies bool) []fabric.Op {
	ops := t.batch.Ops
	t.notify = t.pair.Notify && notifies && !t.silent
	if t.notify && t.kind == fabric.OpWrite && len(ops) == 1 { // the uid travels with the bytes
		t.batch.Carry(t.uid)
		t.notify = false
	}
	return ops
}

// Notification returns a transfer of no bytes that notifies the peer of t, or nil if the peer needs
// none. All bytes of t have been moved. The notification is replayed like any other transfer and
// may arrive twice: the peer keeps one mark for each uid.
func (t *Transfer) Notification() *Transfer {
	if !t.notify || t.Failure() != nil {
		return nil
	}
	n := &Transfer{pair: t.pair, uid: t.uid, kind: fabric.OpWrite, to: t.to,
		progress: progress{start: t.start}, limit: t.limit, silent: true}
	n.replays.Store(t.replays.Load())
	n.batch = batch.New()
	n.batch.Notify(&t.to, t.uid)
	return n
}

// MoveTo adapts t, which is on no path, to the path of l. Either its last path lost some of it, or
// none of it had begun there.
func (t *Transfer) MoveTo(l *Ledger, to *batch.Target) {
	lost := t.forgive()
	if lost {
		t.replays.Add(1)
	}
	if !t.silent {
		t.on.Load().Meter.Op(t.reads()).MovedOn(lost)
		l.Meter.Op(t.reads()).Enter()
	}
	t.batch.Rebase(&t.to, to)
	t.to = *to
	if t.silent {
		t.batch.Carry(t.uid)
	}
}

// overdue returns an error if the deadline of t has passed, else nil.
func (t *Transfer) overdue(now time.Time) error {
	if t.limit == 0 || now.Sub(t.start) < t.limit {
		return nil
	}
	return fmt.Errorf("deadline of %d ms passed: %w", t.limit.Milliseconds(), fabric.ErrTimeout)
}

// report describes how far t came.
func (t *Transfer) report() string {
	verb := "write to"
	if t.reads() {
		verb = "read from"
	}
	since := time.Since(t.start) - time.Duration(t.moved.Load())
	m := t.on.Load().Meter
	tag := ""
	if t.tag != "" {
		tag = fmt.Sprintf(", tag %q", t.tag)
	}
	return fmt.Sprintf("%s %q over %s, uid %d%s: %d of %d bytes done, %s, last progress %d ms ago",
		verb, m.Peer, m.Name, t.uid, tag, t.bytes.Load(), t.total, t.Stage(), since.Milliseconds())
}

// Stage returns the current stage of t.
func (t *Transfer) Stage() string {
	n, replays := t.ops.Load(), t.replays.Load()
	switch {
	case t.gated.Load():
		return "waiting for the GPU's event or stream"
	case replays == 0 && n > 0:
		return fmt.Sprintf("%d ops pending", n)
	case replays > 0 && n > 0:
		return fmt.Sprintf("%d ops pending after %d replays", n, replays)
	case t.on.Load().Err() == nil:
		return "all ops ended"
	}
	return fmt.Sprintf("waiting for a path after %d replays", replays)
}

// Record returns the record of t, without its duration.
func (t *Transfer) Record(code Code) meter.Record {
	return meter.Record{Start: t.start, FirstOp: time.Duration(t.first.Load()),
		LastOp: time.Duration(t.moved.Load()), Bytes: t.bytes.Load(), Total: t.total, UID: t.uid,
		Path: t.on.Load().Meter, Tag: t.tag, Ops: t.opsMade, Replays: uint32(t.replays.Load()),
		Code: uint32(code), Read: t.reads()}
}
