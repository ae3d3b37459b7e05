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
	timeout time.Duration // limit of an exchange; 0 = none
	token   []byte        // identifies the connection at the peer
	closed  chan struct{} // closed when this side's end is closed

	dropped atomic.Bool // the peer has confirmed that its end is closed
}

// Token returns the token that identifies the connection at the peer.
func (f *farEnd) Token() []byte { return f.token }

// Drop makes the peer close its end. When it returns nil, no transfer of the path can write to the
// peer.
func (f *farEnd) Drop(ctx context.Context) error { return f.control.Drop(ctx, f.token) }

// Confirm waits until this side is closed, and then makes the peer close its end, once.
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
