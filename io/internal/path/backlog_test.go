// SPDX-License-Identifier: MIT

package path

import (
	"testing"
	"time"

	"mori/core/fabric"
	"mori/io/internal/errs"
	"mori/io/internal/transfer"
)

// A narrow endpoint has room for a number of ops, and rejects all once it is closed.
type narrow struct {
	fabric.Endpoint
	room   int
	closed bool
	taken  []uint64 // Ctx of the ops that it took
}

func (e *narrow) Submit(ops []fabric.Op) (n int, err error) {
	if e.closed {
		return 0, fabric.ErrShutdown
	}
	for n < len(ops) && e.room > 0 {
		e.taken = append(e.taken, ops[n].Ctx)
		e.room--
		n++
	}
	if n < len(ops) {
		err = fabric.ErrAgain
	}
	return n, err
}

func newBacklog(room int) (*backlog, *narrow) {
	e, b := &narrow{room: room}, new(backlog)
	b.init(e, new(transfer.Ledger))
	return b, e
}

func ops(ctx ...uint64) []fabric.Op {
	all := make([]fabric.Op, len(ctx))
	for i := range ctx {
		all[i].Ctx = ctx[i]
	}
	return all
}

func TestABacklogIsSentInOrderAsThereIsRoom(t *testing.T) {
	b, e := newBacklog(2)
	first, second := new(transfer.Transfer), new(transfer.Transfer)
	if refused := b.send(first, ops(1, 2, 3)); len(refused) != 0 || b.waiting.Load() != 1 {
		t.Errorf("%d refused, %d wait", len(refused), b.waiting.Load())
	}
	b.send(second, ops(4))
	if b.waiting.Load() != 2 || len(e.taken) != 2 {
		t.Errorf("%d wait, and the endpoint took %v", b.waiting.Load(), e.taken)
	}
	e.room = 10
	if b.pump(); b.waiting.Load() != 0 || len(e.taken) != 4 || e.taken[2] != 3 || e.taken[3] != 4 {
		t.Errorf("%d wait, and the endpoint took %v", b.waiting.Load(), e.taken)
	}
}

func TestWhatWasWithdrawnIsNotSent(t *testing.T) {
	b, e := newBacklog(1)
	first, second := new(transfer.Transfer), new(transfer.Transfer)
	b.send(first, ops(1, 2, 3))
	b.send(second, ops(4))
	if n := b.withdraw(first); n != 2 {
		t.Errorf("%d ops withdrawn, want the 2 that the endpoint does not have", n)
	}
	e.room = 10
	if b.pump(); len(e.taken) != 2 || e.taken[1] != 4 || b.waiting.Load() != 0 {
		t.Errorf("the endpoint took %v", e.taken)
	}
}

func TestAClosedEndpointRefusesTheBacklog(t *testing.T) {
	b, e := newBacklog(1)
	x := new(transfer.Transfer)
	b.send(x, ops(1, 2, 3))
	e.closed = true
	if refused := b.pump(); len(refused) != 1 || refused[0].t != x || refused[0].ops != 2 || refused[0].err == nil {
		t.Errorf("%+v", refused)
	}
}

// The next submit sends deferred items, except those with a later due time. All are sent when the
// path closes.
func TestWhatIsLeftForLaterGoesWithTheNextSubmit(t *testing.T) {
	b, e := newBacklog(10)
	b.todo.add(pending{t: new(transfer.Transfer), ops: ops(8), due: time.Now().Add(time.Hour)})
	b.todo.add(pending{t: new(transfer.Transfer), ops: ops(7)})
	b.send(new(transfer.Transfer), ops(1))
	if len(e.taken) != 2 || e.taken[0] != 7 || e.taken[1] != 1 {
		t.Errorf("the endpoint took %v, want the notification and then the op", e.taken)
	}
	b.ledger.Close(errs.ErrClosed)
	if b.pump(); len(e.taken) != 3 || e.taken[2] != 8 {
		t.Errorf("the endpoint took %v of a closed path", e.taken)
	}
}
