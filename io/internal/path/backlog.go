// SPDX-License-Identifier: MIT

package path

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/io/internal/transfer"
)

// A backlog queues ops to be submitted to an endpoint, in order. Its mutex is held while
// submitting.
type backlog struct {
	ep     fabric.Endpoint
	ledger *transfer.Ledger
	todo   deferred // notifications, and ops to be sent again

	waiting atomic.Int64 // length of the list, or 1 while submit is finding out

	mu   sync.Mutex
	list []pending // from next on, oldest first
	next int
}

// pending is the ops of a transfer that the endpoint had no room for, or the notification of a
// transfer that has ended.
type pending struct {
	t   *transfer.Transfer
	ops []fabric.Op
	due time.Time // do not send earlier, unless the path closes; zero: send with the next submit
}

// A refusal is the rest of a transfer that the endpoint rejected.
type refusal struct {
	t   *transfer.Transfer
	ops int
	err error
}

func (b *backlog) init(ep fabric.Endpoint, l *transfer.Ledger) {
	b.ep, b.ledger = ep, l
	b.todo.init()
}

// send queues ops behind the waiting ones and submits what the endpoint has room for. Like pump it
// returns the ops that the endpoint rejected.
func (b *backlog) send(t *transfer.Transfer, ops []fabric.Op) (refused []refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.takeTodo()
	b.list = append(b.list, pending{t: t, ops: ops})
	return b.submit()
}

// pump submits waiting ops as long as the endpoint has room.
func (b *backlog) pump() (refused []refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.takeTodo()
	return b.submit()
}

// takeTodo moves deferred items that are due to the list. It needs mu held.
func (b *backlog) takeTodo() {
	if b.todo.some.Load() {
		b.list = b.todo.move(b.list, b.ledger.Err() != nil)
	}
}

// submit needs mu held.
func (b *backlog) submit() (refused []refusal) {
	announced := false // waiting is set, so reaping knows that ops wait
	for b.next < len(b.list) {
		head := &b.list[b.next]
		if len(head.ops) == 0 { // withdrawn
			*head = pending{}
			b.next++
			continue
		}
		n, err := b.ep.Submit(head.ops)
		head.ops = head.ops[n:]
		if len(head.ops) > 0 {
			if errors.Is(err, fabric.ErrAgain) {
				if announced {
					break
				}
				// Reaping would not notice room that was made before that: try once more.
				b.waiting.Store(1)
				announced = true
				continue
			}
			refused = append(refused, refusal{head.t, len(head.ops), err})
		}
		*head = pending{}
		b.next++
	}
	if b.next == len(b.list) {
		b.list, b.next = b.list[:0], 0
	}
	b.waiting.Store(int64(len(b.list) - b.next))
	return refused
}

// withdraw takes back the ops of t that the endpoint does not have yet, and returns how many.
func (b *backlog) withdraw(t *transfer.Transfer) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := b.next; i < len(b.list); i++ {
		if w := &b.list[i]; w.t == t {
			n += len(w.ops)
			w.ops = nil
		}
	}
	return n
}
