// SPDX-License-Identifier: MIT

package endtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"mori/core/fabric"
)

// A Stack is a list of close functions.
type Stack []func() error

// Close calls all functions, the last one first, and empties the stack.
func (s *Stack) Close() error {
	var errs []error
	for i := len(*s) - 1; i >= 0; i-- {
		errs = append(errs, (*s)[i]())
	}
	*s = nil
	return errors.Join(errs...)
}

// Objects holds an enabled endpoint, bound to one completion queue and one event queue, and its
// domain.
type Objects struct {
	Dom fabric.Domain
	CQ  fabric.CQ
	EQ  fabric.EQ
	EP  fabric.Endpoint
}

// Open makes the Objects on a fabric, with a completion queue of this many entries. It pushes the
// close function of each onto the stack.
func Open(ctx context.Context, fab fabric.Fabric, info *fabric.Info, entries int, all *Stack) (o Objects, err error) {
	if o.Dom, err = fab.Domain(ctx, info); err != nil {
		return o, err
	}
	*all = append(*all, o.Dom.Close)
	if o.CQ, err = o.Dom.CQ(entries); err != nil {
		return o, err
	}
	*all = append(*all, o.CQ.Close)
	if o.EQ, err = fab.EQ(16); err != nil {
		return o, err
	}
	*all = append(*all, o.EQ.Close)
	if o.EP, err = o.Dom.Endpoint(nil); err != nil {
		return o, err
	}
	*all = append(*all, o.EP.Close)
	return o, errors.Join(o.EP.BindCQ(o.CQ, fabric.DirTransmit|fabric.DirRecv, false), o.EP.BindEQ(o.EQ), o.EP.Enable())
}

// Connect connects two endpoints; fab is the second one's.
func Connect(ctx context.Context, from fabric.Endpoint, fab fabric.Fabric, to fabric.Endpoint) error {
	l, err := fab.Listen(ctx, nil)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- Accept(ctx, l, to) }()
	_, err = from.(fabric.Connector).Connect(ctx, l.Addr(), nil)
	return errors.Join(err, <-done, l.Close())
}

// Accept waits for a request and accepts it with an endpoint.
func Accept(ctx context.Context, l fabric.Listener, to fabric.Endpoint) error {
	req, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	return to.(fabric.Connector).Accept(ctx, req, nil)
}

// Submit queues ops, and retries while the queue is full.
func Submit(ctx context.Context, ep fabric.Endpoint, ops ...fabric.Op) error {
	for len(ops) > 0 {
		n, err := ep.Submit(ops)
		ops = ops[n:]
		if err != nil && (!errors.Is(err, fabric.ErrAgain) || ctx.Err() != nil) {
			return err
		}
		if err != nil {
			time.Sleep(20 * time.Microsecond)
		}
	}
	return nil
}

// Next waits for the end of an op.
func Next(ctx context.Context, cq fabric.CQ) (fabric.Completion, error) {
	var done [1]fabric.Completion
	for {
		n, err := cq.Wait(ctx, done[:])
		switch {
		case n == 1:
			return done[0], nil
		case errors.Is(err, fabric.ErrAvail):
			var entry fabric.ErrEntry
			if err = cq.ReadErr(&entry); err == nil {
				return entry.Completion, &entry
			}
		case err != nil:
			return fabric.Completion{}, err
		}
	}
}

// Do submits an op and waits for its end.
func Do(ctx context.Context, ep fabric.Endpoint, cq fabric.CQ, op fabric.Op) error {
	if err := Submit(ctx, ep, op); err != nil {
		return err
	}
	_, err := Next(ctx, cq)
	return err
}

// Flood repeats an op, four at a time, until one fails.
func Flood(ctx context.Context, ep fabric.Endpoint, cq fabric.CQ, op fabric.Op) {
	if Submit(ctx, ep, op, op, op, op) != nil {
		return
	}
	for {
		if _, err := Next(ctx, cq); err != nil || Submit(ctx, ep, op) != nil {
			return
		}
	}
}

// Same returns an error that says where two byte slices differ, or nil.
func Same(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d of %d is %#x, want %#x", i, len(got), got[i], want[i])
		}
	}
	return fmt.Errorf("%d bytes, want %d", len(got), len(want))
}
