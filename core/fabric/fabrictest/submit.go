// SPDX-License-Identifier: MIT

package fabrictest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"mori/core/fabric"
)

// This file is what goroutines of a case submit with: nothing in it ends the case.

// send submits op, from any goroutine, and waits for its success.
func (n *node) send(op fabric.Op) error {
	for {
		k, err := n.try(op)
		if k == 1 {
			break
		}
		if fabric.ErrnoOf(err) != fabric.ErrAgain || n.ctx.Err() != nil {
			return err
		}
	}
	e, err := next(n.ctx, n.cq)
	if err == nil && (e.Err != 0 || e.Ctx != op.Ctx) {
		return &e
	}
	return err
}

// pipeline submits count ops, as many at a time as the endpoint takes, and waits for the success of
// all.
func (n *node) pipeline(count int, op func(i int) fabric.Op) error {
	for i, flying := 0, 0; i < count || flying > 0; {
		if i < count {
			k, err := n.try(op(i))
			if i, flying = i+k, flying+k; k == 1 {
				continue
			}
			if !errors.Is(err, fabric.ErrAgain) {
				return fmt.Errorf("submit op %d of %d: %w", i, count, err)
			}
		}
		if flying == 0 {
			time.Sleep(20 * time.Microsecond)
			continue
		}
		e, err := next(n.ctx, n.cq)
		if err == nil && e.Err != 0 {
			err = &e
		}
		if err != nil {
			return fmt.Errorf("op %d of %d or one before: %w", i, count, err)
		}
		flying--
	}
	return nil
}

// A dispatcher reads the queue of a node and hands each result to who waits for it.
type dispatcher struct {
	n    *node
	mu   sync.Mutex
	last uint64
	wait map[uint64]chan fabric.ErrEntry
}

// dispatch is the dispatcher of a node, which the first call starts. It stops when the case is
// over, before the node closes.
func (n *node) dispatch() *dispatcher {
	if n.dispatcher != nil {
		return n.dispatcher
	}
	d := &dispatcher{n: n, wait: make(map[uint64]chan fabric.ErrEntry)}
	n.dispatcher = d
	over := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(over)
		for {
			e, err := next(n.ctx, n.cq)
			select {
			case <-stop:
				return
			default:
			}
			if err == nil && !d.hand(e) {
				n.Errorf("an op ended that was not under way: %+v", e)
			}
			if err != nil {
				n.Errorf("dispatch: %v", err)
				return
			}
		}
	}()
	n.Cleanup(func() {
		close(stop)
		n.closed(n.ep)
		n.closed(n.cq) // ends the wait for the next result
		<-over
	})
	return d
}

func (d *dispatcher) hand(e fabric.ErrEntry) bool {
	d.mu.Lock()
	ch := d.wait[e.Ctx]
	delete(d.wait, e.Ctx)
	d.mu.Unlock()
	if ch == nil {
		return false
	}
	ch <- e
	return true
}

// start submits op, under a context that it chooses. The result comes on the channel.
func (d *dispatcher) start(op fabric.Op) (<-chan fabric.ErrEntry, error) {
	ch := make(chan fabric.ErrEntry, 1)
	d.mu.Lock()
	d.last++
	op.Ctx = d.last
	d.wait[op.Ctx] = ch
	d.mu.Unlock()
	for {
		n, err := d.n.try(op)
		if n == 1 {
			return ch, nil
		}
		if !errors.Is(err, fabric.ErrAgain) || d.n.ctx.Err() != nil {
			return nil, fmt.Errorf("submit %v: %w", op.Kind, err)
		}
		time.Sleep(20 * time.Microsecond)
	}
}

// run submits op and waits for its end.
func (d *dispatcher) run(op fabric.Op) error {
	ch, err := d.start(op)
	if err != nil {
		return err
	}
	return d.end(ch)
}

func (d *dispatcher) end(ch <-chan fabric.ErrEntry) error {
	select {
	case e := <-ch:
		if e.Err != 0 {
			return &e
		}
		return nil
	case <-d.n.ctx.Done():
		return fmt.Errorf("wait for the end of an op: %w", d.n.ctx.Err())
	}
}
