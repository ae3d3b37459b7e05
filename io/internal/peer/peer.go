// SPDX-License-Identifier: MIT

package peer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"mori/io/internal/backend"
	"mori/io/internal/control"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
	"mori/io/internal/gate"
	"mori/io/internal/health"
	"mori/io/internal/path"
	"mori/io/internal/serial"
	"mori/io/internal/transfer"
)

// Config is shared by the peers of an engine.
type Config struct {
	Self     *control.Self
	Hostname string
	Reporter *transfer.Reporter
	Gates    *gate.Set
	HasXGMI  func() bool // whether an XGMI backend exists

	Idle  time.Duration // an unused path is closed after this time; 0 = never
	Lease time.Duration // how long a peer may show no sign of life; 0 = forever
	Pace  Pace          // of replays
}

// A Peer is one registration of a remote engine, or of the engine itself. Safe for concurrent use.
type Peer struct {
	Desc    descriptor.Engine
	Pending *transfer.Pending
	Tags    *control.TagQueue

	config  *Config
	control *control.Client
	health  health.Record // of transports
	tasks   tasks
	paths   paths
	dialer  dialer
	replays replayer
	life    lease
	dial    serial.Mutex // held while a path is opened: one at a time
}

// New returns a peer. It does no I/O.
func New(c *Config, d descriptor.Engine) *Peer {
	p := &Peer{Desc: d, Pending: transfer.NewPending(d.Key, c.Reporter), config: c}
	p.tasks.init()
	p.paths.init()
	p.control = control.NewClient(c.Self, d, control.Near{SameNode: p.SameNode(), First: c.HasXGMI})
	p.Tags = control.NewTagQueue(p.tasks.ctx, p.control, p.tasks.spawn)
	p.replays = replayer{config: c, pending: p.Pending, tasks: &p.tasks}
	p.dialer = dialer{config: c, desc: &p.Desc, control: p.control, health: &p.health, paths: &p.paths,
		left: p.replays.replay}
	return p
}

// SameNode reports whether the peer is on this host.
func (p *Peer) SameNode() bool {
	if p.Desc.NodeID == "" || p.config.Self.NodeID == "" {
		return p.Desc.Hostname == p.config.Hostname
	}
	return p.Desc.NodeID == p.config.Self.NodeID
}

// Limit bounds one exchange with the peer's control plane by a timeout and by the end of the peer's
// registration.
func (p *Peer) Limit(timeout time.Duration) (context.Context, context.CancelFunc) {
	return control.Limit(p.tasks.ctx, timeout)
}

// Path returns the open path for r, opening one if need be.
func (p *Peer) Path(ctx context.Context, r *backend.Route) (*path.Path, error) {
	if err := p.dial.Lock(ctx); err != nil {
		return nil, fmt.Errorf("open a path to %q: another attempt is in progress: %w (%w)", p.Desc.Key, err,
			errs.ErrUnreachable)
	}
	defer p.dial.Unlock()
	if q, err := p.paths.present(r); q != nil || err != nil {
		return q, err
	}
	w, err := p.control.Greet(ctx)
	if err != nil {
		return nil, err
	}
	q, err := p.dialer.open(ctx, r, w)
	if err != nil {
		return nil, err
	}
	if err := p.paths.put(r, q); err != nil {
		q.Close(err)
		return nil, err
	}
	p.config.Self.Log.Info("path opened", "peer", p.Desc.Key, "path", q.Name(), "instead", p.Why(r, q))
	return q, nil
}

// Paths returns the paths to the peer, including superseded ones.
func (p *Peer) Paths() []*path.Path { return p.paths.all() }

// Why returns why no better path of r than q is used: the reasons found when q was opened, failures
// since then, and how the provider currently moves bytes.
func (p *Peer) Why(r *backend.Route, q *path.Path) []string {
	opened, now := q.Reasons()
	out := slices.Clone(opened)
	for _, tr := range r.Transports {
		if tr == q.Transport() {
			break
		}
		known := slices.ContainsFunc(out, func(s string) bool { return strings.HasPrefix(s, tr.Name()+": ") })
		if text := p.health.Reason(tr.Name()); text != "" && !known {
			out = append(out, text)
		}
	}
	return append(out, now...)
}

// Verify asks the peer whether d is registered there, so that a session for an unknown region fails
// at once.
func (p *Peer) Verify(ctx context.Context, d *descriptor.Memory) error {
	known, size, err := p.control.Region(ctx, d.Key())
	switch {
	case err != nil:
		return err
	case !known:
		return fmt.Errorf("region %d is not registered with engine %q under this key: %w", d.ID,
			d.EngineKey, errs.ErrNotFound)
	case size != d.Size:
		return fmt.Errorf("region %d of engine %q has %d bytes, the descriptor says %d: %w", d.ID,
			d.EngineKey, size, d.Size, errs.ErrInvalid)
	}
	return nil
}

// Replay moves transfers that are on no path to the next one. old is their last path.
func (p *Peer) Replay(old transfer.Path, left []*transfer.Transfer) { p.replays.replay(old, left) }

// ClosePath ends the path of one route.
func (p *Peer) ClosePath(r *backend.Route, reason error) {
	if q := p.paths.remove(r); q != nil {
		q.Close(reason)
	}
}

// ClosePaths closes all paths concurrently, since each may have to wait for the same peer. The next
// transfer opens new ones.
func (p *Peer) ClosePaths(reason error) { p.paths.closeAll(reason) }

// Tick is called regularly. It ends transfers past their deadline, submits backlogs, retries better
// paths, closes unused ones, and checks for signs of life.
func (p *Peer) Tick(now time.Time) {
	p.Pending.Expire(now)
	for _, q := range p.Paths() {
		q.Nudge()
	}
	p.heal(now)
	p.life.beat(p, now)
}

// Close ends the registration: no more transfers can be submitted to this peer, and pending ones
// fail. When Close returns, the peer's answers can write no more bytes to this process.
func (p *Peer) Close(reason error) {
	p.tasks.refuse(reason)
	p.paths.refuse(reason)
	p.Pending.Parked.Close(reason)
	p.tasks.stop()
	p.paths.closeAll(reason)
	_ = p.dial.Lock(context.Background()) // a caller that is opening a path closes it again
	p.paths.unended.Wait()                // includes paths that had broken before
	p.dial.Unlock()
	p.Pending.Parked.Fail(func(*transfer.Transfer) error { return reason })
	p.control.Close()
	p.tasks.wait()
}
