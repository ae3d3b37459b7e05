// SPDX-License-Identifier: MIT

package path

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/io/internal/control"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
	"mori/io/internal/health"
	"mori/io/internal/meter"
	"mori/io/internal/serial"
	"mori/io/internal/transfer"
	"mori/io/internal/transport"
)

// Config has the parts of a Path.
type Config struct {
	Transport *transport.Transport
	Endpoint  fabric.Endpoint // connected; belongs to the path, like CQ
	CQ        fabric.CQ

	Peer     string          // its key
	Control  *control.Client // of the peer
	Timeout  time.Duration   // limit of an exchange with the peer's control plane; 0 = none
	Token    []byte          // identifies the connection at the peer
	Notifies bool            // the peer takes notifications
	Reasons  []string        // why each better path is not used

	Health   *health.Record // of transports to the peer
	Recorder *meter.Recorder
	Log      *slog.Logger

	Left  func(transfer.Path, []*transfer.Transfer) // receives the unfinished transfers of the closed path
	Ended func()                                    // runs when Close is done
}

// A Path is one connected endpoint to one peer. Safe for concurrent use.
type Path struct {
	config Config
	name   string // "shm/cma"

	ledger  transfer.Ledger
	backlog backlog
	regions regions // of the peer

	reaps  serial.Calls          // serializes reaping
	ended  [16]fabric.Completion // scratch of reap
	worker                       // submits what reaping postponed
	farEnd

	used       atomic.Int64 // when the last transfer began, as in transfer.SinceEpoch
	superseded atomic.Bool  // a better path was opened: no new transfers
}

// New returns the path of a connected endpoint and starts its worker.
func New(c Config) *Path {
	p := &Path{config: c, name: c.Transport.Name(), worker: newWorker(),
		farEnd: farEnd{control: c.Control, timeout: c.Timeout, token: c.Token, closed: make(chan struct{})}}
	if pr, ok := c.Endpoint.(fabric.Prober); ok {
		how, why := pr.Path()
		if why != "" { // several ways to move bytes
			p.name += "/" + how
		}
	}
	p.ledger.Path, p.ledger.Meter = p, c.Recorder.Path(c.Peer, p.name)
	p.backlog.init(c.Endpoint, &p.ledger)
	c.CQ.OnReady(p.reap)
	go p.work(p.backlog.todo.timer, func() { p.refuse(p.backlog.pump()) })
	return p
}

// Name returns the names of the transport and of its way to move bytes: "shm/cma".
func (p *Path) Name() string { return p.name }

// Transport returns the transport that the path uses.
func (p *Path) Transport() *transport.Transport { return p.config.Transport }

// Reasons returns why each better path was not used when p was opened. now says how the provider
// currently moves bytes, if it has several ways.
func (p *Path) Reasons() (opened, now []string) {
	if pr, ok := p.config.Endpoint.(fabric.Prober); ok && p.name != p.config.Transport.Name() {
		if _, how := pr.Path(); how != "" {
			now = []string{p.name + ": " + how}
		}
	}
	return p.config.Reasons, now
}

// Ledger returns the transfers on the path.
func (p *Path) Ledger() *transfer.Ledger { return &p.ledger }

// Err returns why the path is closed, nil while it is open.
func (p *Path) Err() error { return p.ledger.Err() }

// Supersede marks the path as replaced: a better one was opened and takes new transfers.
func (p *Path) Supersede() { p.superseded.Store(true) }

// Usable reports whether the path takes new transfers.
func (p *Path) Usable() bool { return p.Err() == nil && !p.superseded.Load() }

// Idle returns how long ago the last transfer began.
func (p *Path) Idle(now time.Time) time.Duration {
	return time.Duration(transfer.SinceEpoch(now) - p.used.Load())
}

// Import makes a region of the peer known to the path's domain, once. It fails if p is closed.
func (p *Path) Import(d *descriptor.Memory) (fabric.RemoteMR, error) { return p.regions.of(p, d) }

// Start puts t on the path and sends its ops. t ends exactly once, in every case.
func (p *Path) Start(t *transfer.Transfer) {
	if !p.enter(t) {
		return
	}
	if ops := t.Prepare(p.config.Notifies); len(ops) > 0 {
		p.refuse(p.backlog.send(t, ops))
	}
	p.opsEnded(t, 1)
}

func (p *Path) enter(t *transfer.Transfer) bool {
	if !p.ledger.Enter(t) {
		return false
	}
	p.used.Store(transfer.SinceEpoch(t.Began()))
	return true
}

// Withdraw takes back the ops of t that the endpoint does not have yet.
func (p *Path) Withdraw(t *transfer.Transfer) {
	if n := p.backlog.withdraw(t); n > 0 {
		p.opsEnded(t, int64(n))
	}
}

// refuse fails the ops that the endpoint rejected.
func (p *Path) refuse(all []refusal) {
	for _, r := range all {
		p.opFailed(r.t, fmt.Errorf("submit: %w", r.err))
		p.opsEnded(r.t, int64(r.ops))
	}
}

// Close ends the path for the given reason. When it returns, no transfer of the path can write to
// this process, and unfinished transfers are being moved to another path.
func (p *Path) Close(reason error) {
	if !p.ledger.Close(reason) {
		<-p.closed
		return
	}
	c := &p.config
	defer c.Ended()
	defer close(p.closed)
	c.Transport.Forget(c.Endpoint)
	p.refuse(p.backlog.pump()) // sends notifications of transfers that succeeded
	_ = c.Endpoint.Close()     // ignored: every op has its error entry
	p.reap()
	p.stop()
	p.backlog.todo.timer.Stop()
	p.refuse(p.backlog.pump()) // the closed endpoint refuses the backlog
	p.reap()
	p.reaps.Settle()
	_ = c.CQ.Close()
	p.regions.close()
	c.Log.Log(context.Background(), severity(reason), "path closed", "peer", c.Peer, "path", p.name,
		"reason", reason)
	if orphans := p.ledger.Orphans(); len(orphans) > 0 {
		c.Left(p, orphans)
	}
}

// ErrIdle is the reason why an unused path was closed. The next transfer opens another.
var ErrIdle = fmt.Errorf("not in use: %w", errs.ErrBadState)

// severity returns the log level for the end of a path: a warning, unless this side or the peer
// closed it on purpose.
func severity(reason error) slog.Level {
	switch {
	case errors.Is(reason, errs.ErrClosed) || errors.Is(reason, ErrIdle):
		return slog.LevelDebug
	case errors.Is(reason, fabric.ErrShutdown):
		return slog.LevelInfo
	}
	return slog.LevelWarn
}
