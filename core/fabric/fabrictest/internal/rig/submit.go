// SPDX-License-Identifier: MIT

package rig

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"mori/core/fabric"
)

// This file is what goroutines of a case submit with: nothing in it ends the case.

// Send submits op, from any goroutine, and waits for its success.
func (n *Node) Send(op fabric.Op) error {
	for {
		k, err := n.Try(op)
		if k == 1 {
			break
		}
		if fabric.ErrnoOf(err) != fabric.ErrAgain || n.Ctx.Err() != nil {
			return err
		}
	}
	e, err := Next(n.Ctx, n.CQ)
	if err == nil && (e.Err != 0 || e.Ctx != op.Ctx) {
		return &e
	}
	return err
}

// Pipeline submits count ops, as many at a time as the endpoint takes, and waits for the success of
// all.
func (n *Node) Pipeline(count int, op func(i int) fabric.Op) error {
	for i, flying := 0, 0; i < count || flying > 0; {
		if i < count {
			k, err := n.Try(op(i))
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
		e, err := Next(n.Ctx, n.CQ)
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

// A Dispatcher reads the queue of a node and hands each result to the goroutine that waits for it.
type Dispatcher struct {
	N    *Node
	mu   sync.Mutex
	last uint64
	wait map[uint64]chan fabric.ErrEntry
}

// Dispatch is the dispatcher of a node, which the first call starts. It stops when the case is
// over, before the node closes.
func (n *Node) Dispatch() *Dispatcher {
	if n.dispatcher != nil {
		return n.dispatcher
	}
	d := &Dispatcher{N: n, wait: make(map[uint64]chan fabric.ErrEntry)}
	n.dispatcher = d
	over := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(over)
		for {
			e, err := Next(n.Ctx, n.CQ)
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
		n.Closed(n.EP)
		n.Closed(n.CQ) // ends the wait for the next result
		<-over
	})
	return d
}

func (d *Dispatcher) hand(e fabric.ErrEntry) bool {
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

// Start submits op, under a context that it chooses. The result comes on the channel.
func (d *Dispatcher) Start(op fabric.Op) (<-chan fabric.ErrEntry, error) {
	ch := make(chan fabric.ErrEntry, 1)
	d.mu.Lock()
	d.last++
	op.Ctx = d.last
	d.wait[op.Ctx] = ch
	d.mu.Unlock()
	for {
		n, err := d.N.Try(op)
		if n == 1 {
			return ch, nil
		}
		if !errors.Is(err, fabric.ErrAgain) || d.N.Ctx.Err() != nil {
			return nil, fmt.Errorf("submit %v: %w", op.Kind, err)
		}
		time.Sleep(20 * time.Microsecond)
	}
}

// Run submits op and waits for its end.
func (d *Dispatcher) Run(op fabric.Op) error {
	ch, err := d.Start(op)
	if err != nil {
		return err
	}
	return d.end(ch)
}

func (d *Dispatcher) end(ch <-chan fabric.ErrEntry) error {
	select {
	case e := <-ch:
		if e.Err != 0 {
			return &e
		}
		return nil
	case <-d.N.Ctx.Done():
		return fmt.Errorf("wait for the end of an op: %w", d.N.Ctx.Err())
	}
}
