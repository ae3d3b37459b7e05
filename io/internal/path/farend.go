// SPDX-License-Identifier: MIT

package path

import (
	"context"
	"sync/atomic"
	"time"

	"mori/io/internal/control"
)

// A farEnd is the peer's end of a path. The control plane closes it.
type farEnd struct {
	control *control.Client
	timeout time.Duration // of an exchange; 0 = none
	token   []byte        // what the connection is known by at the peer
	closed  chan struct{} // closed when this side's end is

	dropped atomic.Bool // the peer has confirmed that its end is closed
}

// Token is what the connection is known by at the peer.
func (f *farEnd) Token() []byte { return f.token }

// Drop has the peer close its end. When it returns nil no byte of a transfer can land there.
func (f *farEnd) Drop(ctx context.Context) error { return f.control.Drop(ctx, f.token) }

// Confirm waits until this side is closed, and has the peer close its end, once.
func (f *farEnd) Confirm(ctx context.Context) error {
	<-f.closed
	if f.dropped.Load() {
		return nil
	}
	ctx, cancel := control.Limit(ctx, f.timeout)
	defer cancel()
	if err := f.Drop(ctx); err != nil {
		return err
	}
	f.dropped.Store(true)
	return nil
}
