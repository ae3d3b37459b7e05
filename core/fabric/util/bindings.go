// SPDX-License-Identifier: MIT

package util

import (
	"fmt"
	"sync"

	"mori/core/fabric"
)

// bindings counts the endpoints that a queue, a counter or an address vector is bound to. The
// object cannot close while one is bound.
type bindings struct {
	object string // for errors

	mu      sync.Mutex
	bound   int
	closed  bool
	onClose func()
}

// Bind counts an endpoint that uses the object. ErrClosed if the object is closed. Close returns
// ErrBusy until Unbind.
func (b *bindings) Bind() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("bind %s: %w", b.object, fabric.ErrClosed)
	}
	b.bound++
	return nil
}

// Unbind undoes one Bind.
func (b *bindings) Unbind() {
	b.mu.Lock()
	b.bound--
	b.mu.Unlock()
}

// OnClose sets a function that Close calls once the object is closed, such as Parent.Leave. Call it
// before others use the object.
func (b *bindings) OnClose(fn func()) { b.onClose = fn }

// close runs end and the OnClose function, the first time only. It returns ErrBusy while an
// endpoint is bound.
func (b *bindings) close(end func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	if b.bound > 0 {
		return fmt.Errorf("close %s with %d bindings: %w", b.object, b.bound, fabric.ErrBusy)
	}
	b.closed = true
	end()
	if b.onClose != nil {
		b.onClose()
	}
	return nil
}
