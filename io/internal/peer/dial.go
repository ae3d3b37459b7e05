// SPDX-License-Identifier: MIT

package peer

import (
	"context"
	"errors"
	"fmt"

	"mori/core"
	"mori/core/admission"
	"mori/core/fabric"
	"mori/io/internal/backend"
	"mori/io/internal/control"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
	"mori/io/internal/health"
	"mori/io/internal/message"
	"mori/io/internal/path"
	"mori/io/internal/transfer"
	"mori/io/internal/transport"
)

// A dialer opens paths to one peer.
type dialer struct {
	config  *Config
	desc    *descriptor.Engine
	control *control.Client
	health  *health.Record
	paths   *paths
	left    func(transfer.Path, []*transfer.Transfer)
}

// open tries the route's transports, those that broke lately after the others. It keeps the reason
// why each failed.
func (d *dialer) open(ctx context.Context, r *backend.Route, w *message.Welcome) (*path.Path, error) {
	return d.openWith(ctx, d.healthyFirst(r.Transports), r, w)
}

// healthyFirst returns the transports in the order to try them: those that broke lately come last.
func (d *dialer) healthyFirst(all []*transport.Transport) []*transport.Transport {
	var healthy, broken []*transport.Transport
	for _, tr := range all {
		if d.health.Broken(tr.Name()) {
			broken = append(broken, tr)
		} else {
			healthy = append(healthy, tr)
		}
	}
	return append(healthy, broken...)
}

// openWith is open over the given transports.
func (d *dialer) openWith(ctx context.Context, all []*transport.Transport, r *backend.Route,
	w *message.Welcome) (*path.Path, error) {
	offered := map[string]string{}
	for _, ep := range w.Endpoints {
		offered[ep.Name] = ep.Addr
	}
	reasons := append([]string(nil), r.Notes...)
	var last error
	for _, tr := range all {
		addr, ok := offered[tr.Name()]
		why := core.Unfit(tr.Name(), d.config.Self.NodeID == w.NodeID)
		switch {
		case !ok:
			why = "the peer does not offer it"
		case why == "":
			q, err := d.connect(ctx, r, tr, fabric.Addr(addr), w, reasons)
			if err == nil {
				d.health.Recovered(tr.Name())
				return q, nil
			}
			d.health.Broke(tr.Name(), err)
			last, why = err, err.Error()
		}
		reasons = append(reasons, tr.Name()+": "+why)
	}
	if last == nil {
		last = errs.ErrUnreachable
	}
	return nil, fmt.Errorf("open a path to %q: %v: %w", d.desc.Key, reasons, last)
}

// connect opens a path with a new endpoint of tr.
func (d *dialer) connect(ctx context.Context, r *backend.Route, tr *transport.Transport, to fabric.Addr,
	w *message.Welcome, reasons []string) (*path.Path, error) {
	var q *path.Path // set when ready is closed, unless connecting failed
	ready := make(chan struct{})
	ep, cq, err := tr.Endpoint(func(err error) {
		<-ready
		if q != nil {
			d.health.Broke(tr.Name(), err)
			q.Close(fmt.Errorf("connection to %q ended: %w", d.desc.Key, err))
		}
	})
	if err != nil {
		return nil, err
	}
	at, _ := control.Addr(*d.desc)
	if err := dialData(ctx, ep.(fabric.Connector), core.DialAddr(to, at),
		message.Ticket(d.config.Self.Signer, w.Token, tr.Name())); err != nil {
		tr.Forget(ep)
		close(ready)
		return nil, errors.Join(fmt.Errorf("connect to %q at %s: %w", d.desc.Key, to, err), ep.Close(),
			cq.Close())
	}
	d.paths.unended.Add(1)
	q = path.New(path.Config{Transport: tr, Endpoint: ep, CQ: cq, Peer: d.desc.Key, Control: d.control,
		Timeout: r.Backend.Config.ControlTimeout(), Token: w.Token, Notifies: w.Notify, Reasons: reasons,
		Health: d.health, Recorder: d.config.Reporter.Recorder, Log: d.config.Self.Log, Left: d.left,
		Ended: d.paths.unended.Done})
	close(ready)
	return q, nil
}

// maxBusy is how often a client retries if its peer is busy. The attempts take at least 8 s, so
// that a deadline of 5 s ends them first.
const maxBusy = 24

// dialData connects an endpoint. It retries with back-off until ctx is done: up to maxBusy times if
// the peer is busy, and up to control.MaxEvictions times if the peer closes the connection without
// an answer. A peer does that to its oldest connections when it receives too many.
func dialData(ctx context.Context, ep fabric.Connector, to fabric.Addr, ticket []byte) (err error) {
	var pause admission.Backoff
	for attempt := 1; ; attempt++ {
		_, err = ep.Connect(ctx, to, ticket)
		most := 0
		switch {
		case errors.Is(err, fabric.ErrBusy):
			most = maxBusy
		case errors.Is(err, fabric.ErrConnReset):
			most = control.MaxEvictions
		}
		if attempt >= most || !pause.Wait(ctx) {
			return err
		}
	}
}
