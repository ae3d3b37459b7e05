// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"mori/io/internal/errs"
	"mori/io/internal/meter"
)

// A Path is what transfers know of the connection that carries them.
type Path interface {
	// Start sends the ops of a transfer, or ends it.
	Start(*Transfer)

	// Err returns why the path is closed, nil while it is open.
	Err() error

	// Withdraw takes back the ops of t that the provider does not have yet.
	Withdraw(t *Transfer)

	// Close ends the path. When it returns no byte of a transfer on it can land on this side.
	Close(reason error)

	// Drop has the peer close its end. When it returns nil no byte of a transfer can land there.
	Drop(context.Context) error

	// Confirm waits until this side is closed, and has the peer close its end, once.
	Confirm(context.Context) error
}

// A Ledger has the transfers on one path: by the Ctx of their ops those with ops in flight, and
// those that the path left undone. Safe for concurrent use.
type Ledger struct {
	Path  Path
	Meter *meter.Path

	rows rows
	end  struct {
		sync.Mutex
		is      atomic.Bool // err is set; each transfer asks this, without the lock
		err     error       // why the path is closed; nil while it is open
		orphans []*Transfer
		passed  bool // the orphans were passed on; later ones are passed on at once
	}
}

// Err returns why the path is closed, nil while it is open.
func (l *Ledger) Err() error {
	if !l.end.is.Load() {
		return nil
	}
	l.end.Lock()
	defer l.end.Unlock()
	return l.end.err
}

// Close makes reason the end of the path. It reports false if the path is closed already.
func (l *Ledger) Close(reason error) bool {
	l.end.Lock()
	defer l.end.Unlock()
	if l.end.err != nil {
		return false
	}
	l.end.err = reason
	l.end.is.Store(true)
	return true
}

// Enter puts t on the path and gives its ops their Ctx, or ends it and reports false. It counts one
// op more than there are, for the caller: t cannot end before the caller has called OpsEnded.
func (l *Ledger) Enter(t *Transfer) bool {
	if t.on.Load() != l {
		t.on.Store(l)
	}
	ops := t.batch.Ops
	if len(ops) >= maxOps || !l.rows.add(t) {
		t.Fail(fmt.Errorf("%d ops in one transfer, or %d pending transfers: too many: %w",
			len(ops), maxRows, errs.ErrInvalid))
		t.End()
		return false
	}
	for i := range ops {
		ops[i].Ctx = t.slot | uint64(i)
	}
	t.ops.Store(int64(len(ops)) + 1)
	return true
}

// Find returns the transfer of an op and the op's index, nil if it is over.
func (l *Ledger) Find(ctx uint64) (t *Transfer, op int) { return l.rows.get(ctx) }

// Leave takes t, whose ops have all ended, off the path.
func (l *Ledger) Leave(t *Transfer) { l.rows.remove(t.slot) }

// Len is how many transfers have ops in flight.
func (l *Ledger) Len() int { return l.rows.len() }

// Orphan keeps a transfer that the path leaves undone until Orphans is called, since only then none
// of its bytes is on its way any more. After that it reports false, and the transfer is the
// caller's.
func (l *Ledger) Orphan(t *Transfer) bool {
	l.end.Lock()
	defer l.end.Unlock()
	if !l.end.passed {
		l.end.orphans = append(l.end.orphans, t)
	}
	return !l.end.passed
}

// Orphans returns what the closed path has left undone. They are the caller's.
func (l *Ledger) Orphans() []*Transfer {
	l.end.Lock()
	defer l.end.Unlock()
	orphans := l.end.orphans
	l.end.orphans, l.end.passed = nil, true
	return orphans
}
