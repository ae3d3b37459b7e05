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

// Config is what the peers of an engine have in common.
type Config struct {
	Self     *control.Self
	Hostname string
	Reporter *transfer.Reporter
	Gates    *gate.Set
	HasXGMI  func() bool // there is an XGMI backend

	Idle  time.Duration // a path that was not used for so long is closed; 0 = never
	Lease time.Duration // how long a peer may show no sign of life; 0: forever
	Pace  Pace          // of replays
}

// A Peer is a remote engine, or the engine itself, as one registration of it is known here. Safe
// for concurrent use.
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

// New makes a peer known. It does no I/O.
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

// Limit bounds one exchange with the peer's control plane, by the end of its registration as well.
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

// Paths lists the paths to the peer, with those that are superseded.
func (p *Peer) Paths() []*path.Path { return p.paths.all() }

// Why says why no better path of r than q is used: what was found when q was opened, what broke
// since then, and what the provider says of how it moves bytes by now.
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

// Verify asks the peer whether d is registered there, so that a session is never born broken.
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

// Replay has transfers that are on no path wait for one. old is the last path.
func (p *Peer) Replay(old transfer.Path, left []*transfer.Transfer) { p.replays.replay(old, left) }

// ClosePath ends the path of one route.
func (p *Peer) ClosePath(r *backend.Route, reason error) {
	if q := p.paths.remove(r); q != nil {
		q.Close(reason)
	}
}

// ClosePaths ends all paths at once, since each may have to wait for the same peer; the next
// transfer opens new ones.
func (p *Peer) ClosePaths(reason error) { p.paths.closeAll(reason) }

// Tick is called regularly. It ends transfers past their deadline and checks for backlogs, paths
// to retry or to close, and signs of life.
func (p *Peer) Tick(now time.Time) {
	p.Pending.Expire(now)
	for _, q := range p.Paths() {
		q.Nudge()
	}
	p.heal(now)
	p.life.beat(p, now)
}

// Close ends the registration: nothing can be submitted to this peer any more, and what is in
// flight fails. When it returns, no byte of the peer's answers can land on this side.
func (p *Peer) Close(reason error) {
	p.tasks.refuse(reason)
	p.paths.refuse(reason)
	p.Pending.Parked.Close(reason)
	p.tasks.stop()
	p.paths.closeAll(reason)
	_ = p.dial.Lock(context.Background()) // the caller that opens a path meanwhile closes it again
	p.paths.unended.Wait()                // for paths that had broken before, too
	p.dial.Unlock()
	p.Pending.Parked.Fail(func(*transfer.Transfer) error { return reason })
	p.control.Close()
	p.tasks.wait()
}
