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

// A Path is the connection that carries transfers, as this package uses it.
type Path interface {
	// Start sends the ops of a transfer, or ends it.
	Start(*Transfer)

	// Err returns why the path is closed, nil while it is open.
	Err() error

	// Withdraw removes the ops of t that the provider does not have yet.
	Withdraw(t *Transfer)

	// Close ends the path. When it returns, no transfer of the path can write to this process.
	Close(reason error)

	// Drop makes the peer close its end. When it returns nil, no transfer of the path can write to
	// the peer.
	Drop(context.Context) error

	// Confirm waits until this side is closed, and then makes the peer close its end, once.
	Confirm(context.Context) error
}

// A Ledger has the transfers on one path: those with pending ops, by the Ctx of their ops, and
// those that the path did not finish. Safe for concurrent use.
type Ledger struct {
	Path  Path
	Meter *meter.Path

	rows rows
	end  struct {
		sync.Mutex
		is      atomic.Bool // err is set; each transfer checks this, without the lock
		err     error       // why the path is closed; nil while it is open
		orphans []*Transfer
		passed  bool // the orphans were passed on; later ones are passed on immediately
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

// Close closes the ledger for the given reason. It reports false if it is closed already.
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

// Enter puts t on the path and assigns its ops their Ctx. If that fails, it ends t and reports
// false. It counts one op more than t has, for the caller: t cannot end before the caller has
// called OpsEnded.
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

// Find returns the transfer of an op and the op's index, nil if the transfer has left the path.
func (l *Ledger) Find(ctx uint64) (t *Transfer, op int) { return l.rows.get(ctx) }

// Leave removes t, whose ops have all ended, from the path.
func (l *Ledger) Leave(t *Transfer) { l.rows.remove(t.slot) }

// Len returns the number of transfers with pending ops.
func (l *Ledger) Len() int { return l.rows.len() }

// Orphan keeps an unfinished transfer until Orphans is called. Before that, bytes of the transfer
// may still be moving. After Orphans, it reports false, and the caller owns the transfer.
func (l *Ledger) Orphan(t *Transfer) bool {
	l.end.Lock()
	defer l.end.Unlock()
	if !l.end.passed {
		l.end.orphans = append(l.end.orphans, t)
	}
	return !l.end.passed
}

// Orphans returns the transfers that the closed path did not finish. The caller owns them.
func (l *Ledger) Orphans() []*Transfer {
	l.end.Lock()
	defer l.end.Unlock()
	orphans := l.end.orphans
	l.end.orphans, l.end.passed = nil, true
	return orphans
}
