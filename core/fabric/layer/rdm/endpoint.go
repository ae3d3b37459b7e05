// SPDX-License-Identifier: MIT

package rdm

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

const (
	// DialTimeout is Config.DialTimeout if that is 0.
	DialTimeout = 5 * time.Second
	// maxOrphaned bounds the messages that wait for receives and whose connection has ended.
	maxOrphaned = 16 << 20
	// maxHandshakes bounds the connections that are being accepted at once; more wait in the listener.
	maxHandshakes = 16
)

// A Config is what a provider gives an Endpoint.
type Config struct {
	Carrier func() (Carrier, error)         // makes an idle EPMsg of the domain
	Listen  func() (fabric.Listener, error) // at Info.Src
	Limits  fabric.Limits
	Log     *slog.Logger // takes a line for each connection that is refused; nil: slog.Default()
	Leave   func()       // called once, when the endpoint has closed

	// DialTimeout bounds how long ops wait for a connection to their peer, and how long a peer's
	// takes. 0: DialTimeout.
	DialTimeout time.Duration
}

// An Endpoint is a fabric.Endpoint of type EPRDM.
type Endpoint struct {
	cfg    Config
	state  util.State
	queues util.Queues
	recv   *util.RecvQueue
	routes routes // to peers; read by Submit without mu
	events *util.EQ
	places chan struct{} // one for each handshake

	closeOnce sync.Once
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	busy      sync.WaitGroup // goroutines; grows with mu held and closed false

	setup    sync.Mutex // held by what configures, by Enable and by Close
	av       *util.AV
	counters []counterBinding
	listener fabric.Listener
	name     fabric.Addr
	hello    []byte

	mu     sync.Mutex
	closed bool
	conns  map[fabric.Endpoint]*conn // by carrier
	byName map[fabric.Addr]*conn     // the routes
}

var _ fabric.Endpoint = (*Endpoint)(nil)

// A counterBinding is repeated for each carrier.
type counterBinding struct {
	counter fabric.Counter
	events  fabric.CountEvents
}

// New makes an endpoint in state idle.
func New(cfg Config) *Endpoint {
	e := &Endpoint{
		cfg:    cfg,
		places: make(chan struct{}, maxHandshakes),
		conns:  make(map[fabric.Endpoint]*conn),
		byName: make(map[fabric.Addr]*conn),
	}
	if e.cfg.Log == nil {
		e.cfg.Log = slog.Default()
	}
	if e.cfg.DialTimeout == 0 {
		e.cfg.DialTimeout = DialTimeout
	}
	e.recv = util.NewRecvQueue(&e.queues, cfg.Limits.RxSize)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// configure runs bind in state idle.
func (e *Endpoint) configure(bind func() error) error {
	e.setup.Lock()
	defer e.setup.Unlock()
	if err := e.state.Configure(); err != nil {
		return err
	}
	return bind()
}

// BindCQ sends the completions of dir to cq; see fabric.Endpoint.
func (e *Endpoint) BindCQ(cq fabric.CQ, dir fabric.Dir, selective bool) error {
	return e.configure(func() error { return e.queues.BindCQ(cq, dir, selective) })
}

// BindCounter makes c count events; see fabric.Endpoint.
func (e *Endpoint) BindCounter(c fabric.Counter, events fabric.CountEvents) error {
	return e.configure(func() error {
		if err := e.queues.BindCounter(c, events); err != nil {
			return err
		}
		// Receives end in the queue that carriers share.
		if sent := events &^ fabric.CountRecv; sent != 0 {
			e.counters = append(e.counters, counterBinding{c, sent})
		}
		return nil
	})
}

// BindAV makes av the meaning of Op.Dest and Completion.Src; see fabric.Endpoint.
func (e *Endpoint) BindAV(av fabric.AV) error {
	return e.configure(func() error {
		v, ok := av.(*util.AV)
		switch {
		case !ok || v == nil:
			return fmt.Errorf("bind an address vector of another kind (%T): %w", av, fabric.ErrInvalid)
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

// BindEQ binds a queue that stays empty; see fabric.Endpoint.
func (e *Endpoint) BindEQ(eq fabric.EQ) error {
	return e.configure(func() error { return e.queues.BindEQ(eq) })
}

// Enable starts to listen; see fabric.Endpoint.
func (e *Endpoint) Enable() error {
	return e.configure(func() error {
		if err := e.queues.Complete(); err != nil {
			return err
		}
		if e.av == nil {
			return fmt.Errorf("enable endpoint without an address vector: %w", fabric.ErrNoAV)
		}
		return e.listen()
	})
}

// listen takes the endpoint's name and starts its goroutines.
func (e *Endpoint) listen() error {
	events, err := util.NewEQ(16)
	if err != nil {
		return err
	}
	l, err := e.cfg.Listen()
	if err != nil {
		return fmt.Errorf("enable endpoint: %w", err)
	}
	hello, err := makeHello(l.Addr(), e.cfg.Limits.MaxPrivate)
	if err != nil {
		_ = l.Close()
		return fmt.Errorf("enable endpoint: %w", err)
	}
	e.events, e.listener, e.name, e.hello = events, l, l.Addr(), hello
	e.spawn(e.acceptAll)
	e.spawn(e.watch)
	return e.state.Enable()
}

// spawn runs fn in a goroutine that Close waits for, or reports that the endpoint is closed.
func (e *Endpoint) spawn(fn func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.spawnLocked(fn)
}

// spawnLocked is spawn with mu held.
func (e *Endpoint) spawnLocked(fn func()) bool {
	if e.closed {
		return false
	}
	e.busy.Add(1)
	go func() {
		defer e.busy.Done()
		fn()
	}()
	return true
}

// Name is the listener's address; see fabric.Endpoint.
func (e *Endpoint) Name() (fabric.Addr, error) {
	if err := e.state.SubmitEarly(); err != nil {
		return "", err
	}
	return e.name, nil
}

// Cancel ends pending receives; see fabric.Endpoint.
func (e *Endpoint) Cancel(ctx uint64) error {
	if e.state.SubmitEarly() == fabric.ErrClosed {
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
	e.setup.Lock()
	defer e.setup.Unlock()
	e.state.Close()
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	if e.listener != nil {
		_ = e.listener.Close()
	}
	e.busy.Wait() // nobody dials, accepts or retires any more: the carriers that are left are connected, or aborted
	var closing sync.WaitGroup
	for _, c := range e.left() {
		closing.Add(1)
		go func() {
			defer closing.Done()
			_ = c.carrier.Close()
		}()
	}
	closing.Wait()
	e.recv.End(fabric.ErrCanceled, "endpoint closed")
	e.queues.Unbind()
	if e.av != nil {
		e.av.Unbind()
	}
	e.cfg.Leave()
}
