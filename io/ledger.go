// SPDX-License-Identifier: MIT

package io

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
)

// A transfer is one submitted batch on its way.
//
//	submitting ─▶ moving (ops in flight) ─▶ ended
//
// ops counts what has still to end; whoever takes it to zero ends the transfer.
type transfer struct {
	status  *Status
	session *Session
	path    *path
	uid     uint64
	kind    fabric.OpKind
	total   uint64
	batch   *batch
	slot    uint64 // Op.Ctx
	key     uint64 // of the remote region

	ops    atomic.Int64
	bytes  atomic.Uint64 // that ended well
	moved  atomic.Int64  // time of the last progress, ns since start
	start  time.Time
	limit  time.Duration // 0 = none
	notify bool          // the notification does not travel with the bytes

	mu  sync.Mutex
	err error // guarded by mu; the first failure

	// Guarded by order.mu.
	next    *transfer
	ended   bool
	success string
}

func (t *transfer) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
}

func (t *transfer) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// notification is the op that tells the peer of a transfer whose bytes are all moved. Its Ctx is no slot: the ledger
// does not know it.
func (t *transfer) notification() fabric.Op {
	return fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, RSeg: fabric.RSeg{Key: t.key}, Data: t.uid}
}

func (t *transfer) progress(n uint64) {
	t.bytes.Add(n)
	t.moved.Store(int64(time.Since(t.start)))
}

// report says how far t came.
func (t *transfer) report() string {
	verb := "write to"
	if t.kind == fabric.OpRead {
		verb = "read from"
	}
	since := time.Since(t.start) - time.Duration(t.moved.Load())
	return fmt.Sprintf("%s %q over %s, uid %d: %d of %d bytes done, last progress %d ms ago", verb, t.path.peer.desc.Key, t.path.name,
		t.uid, t.bytes.Load(), t.total, since.Milliseconds())
}

// A ledger maps Op.Ctx to the transfers of one path. A slot's generation changes with each use, so that a
// completion that comes too late hits nothing.
type ledger struct {
	mu   sync.Mutex
	row  []ledgerRow
	free []uint32
}

type ledgerRow struct {
	t   *transfer
	gen uint32
}

func (l *ledger) add(t *transfer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var i uint32
	if n := len(l.free); n > 0 {
		i, l.free = l.free[n-1], l.free[:n-1]
	} else {
		i = uint32(len(l.row))
		l.row = append(l.row, ledgerRow{})
	}
	r := &l.row[i]
	r.gen++
	r.t = t
	t.slot = uint64(r.gen)<<32 | uint64(i)
}

func (l *ledger) get(slot uint64) *transfer {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := uint32(slot)
	if int(i) >= len(l.row) || l.row[i].gen != uint32(slot>>32) {
		return nil
	}
	return l.row[i].t
}

func (l *ledger) remove(slot uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := uint32(slot)
	l.row[i].t = nil
	l.row[i].gen++
	l.free = append(l.free, i)
}

// codeOf maps the cause of a failed transfer to its public code.
func codeOf(err error) StatusCode {
	switch {
	case errors.Is(err, ErrInvalid), errors.Is(err, fabric.ErrRange), errors.Is(err, fabric.ErrAccess):
		return CodeErrInvalidArgs
	case errors.Is(err, ErrNotFound), errors.Is(err, fabric.ErrNoKey), errors.Is(err, fabric.ErrNoMR):
		return CodeErrNotFound
	case errors.Is(err, ErrBadState), errors.Is(err, ErrClosed):
		return CodeErrBadState
	}
	return CodeErrRDMAOp
}
