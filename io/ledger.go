// SPDX-License-Identifier: MIT

package io

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/io/internal/batch"
)

// A transfer is one submitted batch on its way.
//
//	                        ┌──────── replay ────────┐
//	                        ▼                        │
//	submitting ─▶ moving (ops in flight) ─▶ orphaned (its path broke)
//	                        │                        │
//	                        └────────▶ ended ◀───────┘
//
// ops counts what has still to end on the present path; whoever takes it to zero decides how it
// goes on. An op that ended well is done for good; the others are replayed on the next path, unless
// the transfer has failed.
type transfer struct {
	status  *Status
	session *Session
	path    atomic.Pointer[path] // the present or last one
	uid     uint64
	kind    fabric.OpKind
	total   uint64
	batch   *batch.Batch
	to      batch.Target // what the ops of batch were made for
	slot    uint64       // Op.Ctx of the first op
	tag     string       // "" = none
	opsMade uint32       // before any replay
	load    int64        // what it counts against the limit on pending transfers
	silent  bool         // a notification: nobody waits for it, and it has no status
	gated   atomic.Bool  // it waits for a GPU and has not begun

	ops     atomic.Int64
	bytes   atomic.Uint64 // that ended well
	first   atomic.Int64  // time of the first progress, ns since start
	moved   atomic.Int64  // time of the last one
	start   time.Time
	limit   time.Duration // 0 = none
	notify  bool          // the notification does not travel with the bytes
	altered int           // ops that were sent again; belongs to who reaps
	replays atomic.Int32  // how often it was moved to another path

	troubled atomic.Bool // err or lost was set: without trouble, which is usual, nobody takes mu

	mu   sync.Mutex
	err  error // guarded by mu; the first failure, which is final
	lost error // guarded by mu; the first op that its path did not bring to an end

	// Guarded by order.mu.
	next     *transfer
	ended    bool
	reported bool
	success  string
}

// fail makes err the end of t.
func (t *transfer) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	t.troubled.Store(true)
}

func (t *transfer) failure() error {
	if !t.troubled.Load() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// lose notes that the path did not bring an op to its end.
func (t *transfer) lose(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil {
		t.lost = err
	}
	t.troubled.Store(true)
}

func (t *transfer) loss() error {
	if !t.troubled.Load() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}

// opEnded books the outcome of one op. It reports whether the path is to blame.
func (t *transfer) opEnded(err error) (pathBroke bool) {
	if isPathError(err) {
		t.lose(err)
		return true
	}
	t.fail(err)
	return false
}

// isPathError reports whether another path may do what this one did not. It is false if the target
// or this side has refused the op itself, and after ErrFault: by the time of a retry something else
// may be mapped where the memory was.
func isPathError(err error) bool {
	switch fabric.ErrnoOf(err) {
	case fabric.ErrFault, fabric.ErrAccess, fabric.ErrRange, fabric.ErrNoKey, fabric.ErrNoMR, fabric.ErrInvalid, fabric.ErrMsgSize, fabric.ErrBadFlags, fabric.ErrNotSupported:
		return false
	}
	return true
}

// overdue is nil, or the error of a transfer whose deadline has passed.
func (t *transfer) overdue(now time.Time) error {
	if t.limit == 0 || now.Sub(t.start) < t.limit {
		return nil
	}
	return fmt.Errorf("deadline of %d ms passed: %w", t.limit.Milliseconds(), fabric.ErrTimeout)
}

func (t *transfer) progress(n uint64) {
	t.bytes.Add(n)
	at := int64(time.Since(t.start))
	t.moved.Store(at)
	if t.first.Load() == 0 {
		t.first.Store(at)
	}
}

// report says how far t came.
func (t *transfer) report() string {
	verb := "write to"
	if t.kind == fabric.OpRead {
		verb = "read from"
	}
	since := time.Since(t.start) - time.Duration(t.moved.Load())
	q := t.path.Load()
	tag := ""
	if t.tag != "" {
		tag = fmt.Sprintf(", tag %q", t.tag)
	}
	return fmt.Sprintf("%s %q over %s, uid %d%s: %d of %d bytes done, %s, last progress %d ms ago",
		verb, q.peer.desc.Key, q.name,
		t.uid, tag, t.bytes.Load(), t.total, t.stage(), since.Milliseconds())
}

// stage says where t stands.
func (t *transfer) stage() string {
	n, replays := t.ops.Load(), t.replays.Load()
	switch {
	case t.gated.Load():
		return "waiting for the GPU's event or stream"
	case replays == 0 && n > 0:
		return fmt.Sprintf("%d ops pending", n)
	case replays > 0 && n > 0:
		return fmt.Sprintf("%d ops pending after %d replays", n, replays)
	case t.path.Load().err() == nil:
		return "all ops ended"
	}
	return fmt.Sprintf("waiting for a path after %d replays", replays)
}

// An op's Ctx: its transfer's row in the ledger, the row's generation, and its index in the batch.
const (
	opBits  = 28
	rowBits = 20
	maxOps  = 1 << opBits  // of a transfer
	maxRows = 1 << rowBits // transfers in flight on one path
)

// A ledger maps Op.Ctx to the transfers of one path. A row's generation changes with each use, so
// that a completion that comes too late hits nothing.
type ledger struct {
	mu   sync.Mutex
	row  []ledgerRow
	free []uint32
	live int
}

type ledgerRow struct {
	t   *transfer
	gen uint16
}

// add gives t a row, or answers false if all are taken.
func (l *ledger) add(t *transfer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var i uint32
	switch n := len(l.free); {
	case n > 0:
		i, l.free = l.free[n-1], l.free[:n-1]
	case len(l.row) == maxRows:
		return false
	default:
		i = uint32(len(l.row))
		l.row = append(l.row, ledgerRow{})
	}
	r := &l.row[i]
	r.gen++
	r.t = t
	l.live++
	t.slot = uint64(r.gen)<<(rowBits+opBits) | uint64(i)<<opBits
	return true
}

// get returns the transfer of an op and the op's index, nil if it is over.
func (l *ledger) get(ctx uint64) (t *transfer, op int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := ctx >> opBits & (maxRows - 1)
	if i >= uint64(len(l.row)) || l.row[i].gen != uint16(ctx>>(rowBits+opBits)) {
		return nil, 0
	}
	return l.row[i].t, int(ctx & (maxOps - 1))
}

func (l *ledger) remove(slot uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := uint32(slot >> opBits & (maxRows - 1))
	l.row[i].t = nil
	l.row[i].gen++
	l.free = append(l.free, i)
	l.live--
}

// len is how many transfers are in it.
func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live
}

// codeOf maps the cause of a failed transfer to its public code.
func codeOf(err error) StatusCode {
	switch {
	case errors.Is(err, ErrInvalid), errors.Is(err, fabric.ErrRange), errors.Is(err, fabric.ErrAccess):
		return CodeErrInvalidArgs
	case errors.Is(err, ErrNotFound), errors.Is(err, fabric.ErrNoKey), errors.Is(err, fabric.ErrNoMR):
		return CodeErrNotFound
	case errors.Is(err, ErrBadState), errors.Is(err, ErrClosed), errors.Is(err, ErrCanceled):
		return CodeErrBadState
	case errors.Is(err, ErrGPU):
		return CodeErrGPUOp
	case errors.Is(err, fabric.ErrFault):
		return CodeErrBadAddress
	}
	return CodeErrRDMAOp
}
