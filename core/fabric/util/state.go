// SPDX-License-Identifier: MIT

package util

import (
	"fmt"
	"sync/atomic"

	"mori/core/fabric"
)

// A State is an endpoint's state. The zero value is idle.
//
//	idle ──Enable──▶ enabled ──Connect──▶ connecting ──Connected──▶ connected ──Shut──▶ shut
//	                    ▲                     │ ConnectFailed
//	                    └─────────────────────┘          and from each by Close ──▶ closed
type State struct{ v atomic.Uint32 }

const (
	stateIdle = iota
	stateEnabled
	stateConnecting
	stateConnected
	stateShut
	stateClosed
)

var stateText = [...]string{"idle", "enabled", "connecting", "connected", "shut down", "closed"}

// String returns the state as text.
func (s *State) String() string { return stateText[s.v.Load()] }

// Configure returns nil while queues may be bound.
func (s *State) Configure() error {
	switch v := s.v.Load(); v {
	case stateIdle:
		return nil
	case stateClosed:
		return fabric.ErrClosed
	default:
		return fmt.Errorf("configure an endpoint that is %s: %w", stateText[v], fabric.ErrOpBadState)
	}
}

// Enable goes from idle to enabled.
func (s *State) Enable() error {
	if s.v.CompareAndSwap(stateIdle, stateEnabled) {
		return nil
	}
	if err := s.Configure(); err != nil {
		return err
	}
	return fmt.Errorf("enable endpoint twice: %w", fabric.ErrOpBadState)
}

// Connect goes from enabled to connecting: for Connector.Connect and Accept.
func (s *State) Connect() error {
	if s.v.CompareAndSwap(stateEnabled, stateConnecting) {
		return nil
	}
	switch v := s.v.Load(); v {
	case stateIdle:
		return fmt.Errorf("connect endpoint before enable: %w", fabric.ErrOpBadState)
	case stateClosed:
		return fabric.ErrClosed
	default:
		return fmt.Errorf("connect an endpoint that is %s: %w", stateText[v], fabric.ErrIsConn)
	}
}

// Connected goes from connecting to connected, and reports false if the endpoint was closed
// meanwhile.
func (s *State) Connected() bool { return s.v.CompareAndSwap(stateConnecting, stateConnected) }

// ConnectFailed goes back from connecting to enabled.
func (s *State) ConnectFailed() { s.v.CompareAndSwap(stateConnecting, stateEnabled) }

// IsConnected reports whether the endpoint is connected now.
func (s *State) IsConnected() bool { return s.v.Load() == stateConnected }

// Shut goes from connected to shut and reports whether this call did it.
func (s *State) Shut() bool { return s.v.CompareAndSwap(stateConnected, stateShut) }

// Close goes to closed and reports whether this call did it.
func (s *State) Close() bool { return s.v.Swap(stateClosed) != stateClosed }

// Submit returns nil if an op of this kind may be submitted now. Its errors are unwrapped.
func (s *State) Submit(kind fabric.OpKind) error {
	switch s.v.Load() {
	case stateConnected:
		return nil
	case stateIdle:
		return fabric.ErrOpBadState
	case stateClosed:
		return fabric.ErrClosed
	case stateEnabled, stateConnecting:
		if kind == fabric.OpRecv {
			return nil
		}
	}
	return fabric.ErrNotConn
}

// SubmitEarly is Submit for endpoints that accept and hold ops before they have a peer. It returns
// nil in the states enabled to connected.
func (s *State) SubmitEarly() error {
	switch s.v.Load() {
	case stateConnected, stateConnecting, stateEnabled:
		return nil
	case stateIdle:
		return fabric.ErrOpBadState
	case stateClosed:
		return fabric.ErrClosed
	}
	return fabric.ErrNotConn
}
