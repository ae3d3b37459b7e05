// SPDX-License-Identifier: MIT

package pathbase

import (
	"errors"
	"fmt"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/local"
)

// A Port is the part of a conn.Port that every data path of a device needs.
type Port interface {
	Finish(t conn.Ticket, err error)
	Forward(t conn.Ticket)
	HandBack(t conn.Ticket)
	SendFrame(kind uint8, body []byte) error
	Fail(err error)
	Peer() fabric.Addr
}

// An Outcome is the result of an attempt to start an op.
type Outcome int

// The outcomes.
const (
	Started  Outcome = iota // the op is in progress or has ended
	ByStream                // the stream must carry the op
	NotYet                  // information is missing: retry in a goroutine that may block
)

// ErrNotYet is the error for the outcome NotYet.
var ErrNotYet = errors.New("not known yet")

// Ops tracks the ops of one data path between RMA and their completion, and its shutdown. Exactly
// one of the methods that end an op is called, once, for each op that Admit has admitted.
type Ops struct {
	Stopped chan struct{} // closed by Stop

	port     Port
	provider string
	gate     local.Gate
	cause    atomic.Pointer[error]
}

// Init initializes the Ops. provider is the name for error texts.
func (o *Ops) Init(port Port, provider string) {
	o.Stopped, o.port, o.provider = make(chan struct{}), port, provider
}

// Admit admits an op. After Stop, it finishes the op with the cause and returns false.
func (o *Ops) Admit(t conn.Ticket) bool {
	if o.gate.Enter() {
		return true
	}
	o.port.Finish(t, o.Cause())
	return false
}

// Refuse ends an op that RMA leaves to the stream.
func (o *Ops) Refuse() { o.gate.Leave() }

// HandBack returns an op that RMA has taken to the stream. No byte of it may have been moved.
func (o *Ops) HandBack(t conn.Ticket) {
	o.port.HandBack(t)
	o.gate.Leave()
}

// Complete ends an op whose bytes have been moved, or that failed with err. If notify is set, the
// stream sends the remote data of an op that succeeded.
func (o *Ops) Complete(t conn.Ticket, notify bool, err error) {
	if err == nil && notify {
		o.port.Forward(t)
	} else {
		o.port.Finish(t, err)
	}
	o.gate.Leave()
}

// Stop refuses further ops. empty is closed when all ops have ended. why is cause, or
// ErrConnAborted if cause is nil. Call Stop once.
func (o *Ops) Stop(cause error) (empty <-chan struct{}, why error) {
	if cause == nil {
		cause = fabric.ErrConnAborted
	}
	o.cause.Store(&cause)
	close(o.Stopped)
	return o.gate.Shut(), cause
}

// IsStopped reports whether Stop was called.
func (o *Ops) IsStopped() bool { return IsClosed(o.Stopped) }

// Cause returns the cause of Stop, or nil before Stop.
func (o *Ops) Cause() error {
	if cause := o.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// Send sends an extension frame. If conn.MaxExtensionQueue bytes of frames are queued, the peer
// counts as dead and the connection fails.
func (o *Ops) Send(kind uint8, body []byte) {
	if err := o.port.SendFrame(kind, body); err != nil && !o.IsStopped() {
		o.port.Fail(fmt.Errorf("send %s frame of kind %d: %w", o.provider, kind, err))
	}
}

// IsClosed reports whether a channel that carries no values is closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
