// SPDX-License-Identifier: MIT

package util

import (
	"fmt"
	"sync"

	"mori/core/fabric"
)

// An EndpointBase is what a provider's endpoint embeds: its state, and the queues that it is bound
// to. The zero value is idle.
type EndpointBase struct {
	State  State
	Queues Queues
	Setup  sync.Mutex // held while queues are bound and while the endpoint is enabled
}

// Configure runs bind if the endpoint is idle. Calls are serialized.
func (e *EndpointBase) Configure(bind func() error) error {
	e.Setup.Lock()
	defer e.Setup.Unlock()
	if err := e.State.Configure(); err != nil {
		return err
	}
	return bind()
}

// BindCQ sends the completions of dir to cq; see fabric.Endpoint.
func (e *EndpointBase) BindCQ(cq fabric.CQ, dir fabric.Dir, selective bool) error {
	return e.Configure(func() error { return e.Queues.BindCQ(cq, dir, selective) })
}

// BindCounter makes c count the given events; see fabric.Endpoint.
func (e *EndpointBase) BindCounter(c fabric.Counter, events fabric.CountEvents) error {
	return e.Configure(func() error { return e.Queues.BindCounter(c, events) })
}

// BindEQ sends connection events to eq; see fabric.Endpoint.
func (e *EndpointBase) BindEQ(eq fabric.EQ) error {
	return e.Configure(func() error { return e.Queues.BindEQ(eq) })
}

// Enable ends the configuration; see fabric.Endpoint.
func (e *EndpointBase) Enable() error { return e.EnableWith(func() error { return nil }) }

// EnableWith is Enable for an endpoint that opens a resource once its queues are bound. If open
// fails, the endpoint stays idle.
func (e *EndpointBase) EnableWith(open func() error) error {
	return e.Configure(func() error {
		if err := e.Queues.Complete(); err != nil {
			return err
		}
		if err := open(); err != nil {
			return err
		}
		return e.State.Enable()
	})
}

// A MsgBase is the EndpointBase of a connected endpoint (EPMsg). It has one peer, so it has neither
// an address vector nor a name.
type MsgBase struct{ EndpointBase }

// BindAV returns an error; see fabric.Endpoint.
func (e *MsgBase) BindAV(fabric.AV) error {
	return e.Configure(func() error {
		return fmt.Errorf("bind an address vector to an endpoint that connects: %w", fabric.ErrInvalid)
	})
}

// Name returns an error; see fabric.Endpoint.
func (e *MsgBase) Name() (fabric.Addr, error) {
	if e.State.Configure() == fabric.ErrClosed {
		return "", fabric.ErrClosed
	}
	return "", fmt.Errorf("name of an endpoint that connects: %w", fabric.ErrNoSys)
}
