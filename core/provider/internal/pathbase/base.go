// SPDX-License-Identifier: MIT

package pathbase

import (
	"fmt"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/provider/internal/local"
)

// A Sender is the part of a conn.Port that Send needs.
type Sender interface {
	SendFrame(kind uint8, body []byte) error
	Fail(err error)
}

// A Base is the gate of a data path and its end. A data path embeds it and calls InitBase.
type Base struct {
	Ops     local.Gate    // ops between RMA and the stream's Finish
	Stopped chan struct{} // closed when Close begins

	cause  atomic.Pointer[error]
	reason atomic.Pointer[string]
}

// InitBase prepares the Base.
func (b *Base) InitBase() { b.Stopped = make(chan struct{}) }

// Stop closes Stopped. cause is why; nil is ErrConnAborted. It is called once and returns cause.
func (b *Base) Stop(cause error) error {
	if cause == nil {
		cause = fabric.ErrConnAborted
	}
	b.cause.Store(&cause)
	close(b.Stopped)
	return cause
}

// IsStopped reports whether Stop was called.
func (b *Base) IsStopped() bool {
	select {
	case <-b.Stopped:
		return true
	default:
		return false
	}
}

// Cause is that of Stop, nil before.
func (b *Base) Cause() error {
	if cause := b.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// Slow notes why an op takes the stream. It reports whether it is the first.
func (b *Base) Slow(why error) (first bool) {
	text := why.Error()
	return b.reason.Swap(&text) == nil
}

// SlowReason is the last reason that Slow got, "" without one.
func (b *Base) SlowReason() string {
	if why := b.reason.Load(); why != nil {
		return *why
	}
	return ""
}

// Send sends a frame of a provider. A peer that lets MaxExtensionQueue of frames pile up is not
// alive, so the connection fails.
func (b *Base) Send(to Sender, provider string, kind uint8, body []byte) {
	if err := to.SendFrame(kind, body); err != nil && !b.IsStopped() {
		to.Fail(fmt.Errorf("send %s frame of kind %d: %w", provider, kind, err))
	}
}
