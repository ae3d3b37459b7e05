// SPDX-License-Identifier: MIT

package rdm

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/fabric/util/receive"
)

const (
	// DialTimeout is the default of Config.DialTimeout.
	DialTimeout = 5 * time.Second
	// maxOrphaned bounds the bytes of messages that wait for receives after their connection has
	// ended.
	maxOrphaned = 16 << 20
	// maxHandshakes bounds the concurrent handshakes; further requests wait in the listener.
	maxHandshakes = 16
)

// A Config is what a provider passes to New.
type Config struct {
	Carrier func() (Carrier, error)         // makes an idle EPMsg of the domain
	Listen  func() (fabric.Listener, error) // at Info.Src
	Limits  fabric.Limits
	Log     *slog.Logger // gets a line for each refused connection; nil: slog.Default()
	Leave   func()       // called once, when the endpoint has closed

	// DialTimeout bounds how long ops wait for a connection to their peer, and how long a peer's
	// handshake may take. 0: the constant DialTimeout.
	DialTimeout time.Duration
}

// An Endpoint is a fabric.Endpoint of type EPRDM. Its parts own their state:
//
//	conns     the carriers, by peer, and the goroutines that work on them
//	acceptor  answers peers that connect to this endpoint
type Endpoint struct {
	util.EndpointBase
	cfg      Config
	recv     *receive.Queue
	av       *util.AV
	name     fabric.Addr
	conns    conns
	acceptor acceptor

	closeOnce sync.Once
}

var _ fabric.Endpoint = (*Endpoint)(nil)

// New makes an endpoint in state idle.
func New(cfg Config) *Endpoint {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = DialTimeout
	}
	e := &Endpoint{cfg: cfg}
	e.recv = receive.NewQueue(&e.Queues, cfg.Limits.RxSize)
	e.conns.init(e)
	e.acceptor.init(&e.conns)
	return e
}

// BindCounter makes c count the given events; see fabric.Endpoint.
func (e *Endpoint) BindCounter(c fabric.Counter, events fabric.CountEvents) error {
	return e.Configure(func() error {
		if err := e.Queues.BindCounter(c, events); err != nil {
			return err
		}
		// The queue that the carriers share counts receives.
		if sent := events &^ fabric.CountRecv; sent != 0 {
			e.conns.counters = append(e.conns.counters, counterBinding{c, sent})
		}
		return nil
	})
}

// BindAV sets the address vector of Op.Dest and Completion.Src; see fabric.Endpoint.
func (e *Endpoint) BindAV(av fabric.AV) error {
	return e.Configure(func() error {
		v, ok := av.(*util.AV)
		switch {
		case !ok || v == nil:
			return fmt.Errorf("bind an address vector of another provider (%T): %w", av, fabric.ErrInvalid)
		case e.av != nil:
			return fmt.Errorf("bind a second address vector: %w", fabric.ErrOpBadState)
		}
		if err := v.Bind(); err != nil {
			return err
		}
		e.av = v
		return nil
	})
}

// Enable starts to listen; see fabric.Endpoint.
func (e *Endpoint) Enable() error {
	return e.EnableWith(func() error {
		if e.av == nil {
			return fmt.Errorf("enable endpoint without an address vector: %w", fabric.ErrNoAV)
		}
		return e.listen()
	})
}

// listen opens the listener, which gives the endpoint its name, and starts the goroutines.
func (e *Endpoint) listen() error {
	events, err := util.NewEQ(16)
	if err != nil {
		return err
	}
	l, err := e.cfg.Listen()
	if err != nil {
		return fmt.Errorf("enable endpoint: %w", err)
	}
	handshake, err := makeHandshake(l.Addr(), e.cfg.Limits.MaxPrivate)
	if err != nil {
		_ = l.Close()
		return fmt.Errorf("enable endpoint: %w", err)
	}
	e.name = l.Addr()
	e.conns.start(events, handshake)
	e.acceptor.start(l)
	return nil
}

// Name returns the listener's address; see fabric.Endpoint.
func (e *Endpoint) Name() (fabric.Addr, error) {
	if err := e.State.SubmitEarly(); err != nil {
		return "", err
	}
	return e.name, nil
}

// Cancel ends pending receives; see fabric.Endpoint.
func (e *Endpoint) Cancel(ctx uint64) error {
	if e.State.SubmitEarly() == fabric.ErrClosed {
		return fabric.ErrClosed
	}
	e.recv.Cancel(ctx)
	return nil
}

// Close ends every connection and every op; see fabric.Endpoint.
func (e *Endpoint) Close() error {
	e.closeOnce.Do(e.close)
	return nil
}

func (e *Endpoint) close() {
	e.Setup.Lock()
	defer e.Setup.Unlock()
	e.State.Close()
	e.conns.close(e.acceptor.stop)
	e.recv.End(fabric.ErrCanceled, "endpoint closed")
	e.Queues.Unbind()
	if e.av != nil {
		e.av.Unbind()
	}
	e.cfg.Leave()
}
