// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"mori/io/internal/meter"
	"mori/io/internal/region"
	"mori/io/internal/stall"
	"mori/io/internal/watch"
)

// A Reporter receives the outcomes of an engine's transfers.
type Reporter struct {
	Log      *slog.Logger
	Recorder *meter.Recorder
	Endings  *watch.Endings
	Stalls   *stall.Traces
}

// A Pair is a local and a remote region, with the state that transfers between them share.
type Pair struct {
	Pending *Pending
	Local   *region.Region
	Remote  uint32  // id of the remote region
	Notify  bool    // the peer is notified of transfers that arrived
	GPUs    bool    // both regions are GPU memory of this host
	Mover   Resumer // finds another path for transfers of this pair
}

// A Resumer moves a transfer to another path.
type Resumer interface {
	// Resume starts a parked transfer on the present path of its pair, and opens one if necessary.
	// It ignores a transfer that is not parked any more. If it finds no path, it returns the
	// reason, and the transfer stays parked.
	Resume(*Transfer) error
}

// Pending has the transfers to one peer that have not ended.
type Pending struct {
	Peer     string // its key
	Reporter *Reporter
	Order    Order
	Parked   Parking
}

// NewPending returns an empty Pending.
func NewPending(peer string, r *Reporter) *Pending {
	return &Pending{Peer: peer, Reporter: r, Order: Order{recorder: r.Recorder}}
}

// Expire fails the transfers whose deadline has passed and closes their paths. So none of their
// bytes can be written here after the status reported the failure. The other transfers of these
// paths move to new paths.
func (p *Pending) Expire(now time.Time) {
	p.Parked.Fail(func(t *Transfer) error { return t.overdue(now) })
	stalled := map[Path]error{}
	p.Order.Each(func(t *Transfer) {
		if err := t.overdue(now); err != nil {
			t.Fail(err)
			stalled[t.Path()] = err
		}
	})
	for path, err := range stalled {
		go path.Close(fmt.Errorf("a transfer stalled: %w",
			err)) // waits for the transport; the clock must not
	}
}

// Cancel is Status.Cancel for all transfers of the pair with this uid. It returns nil if there are
// none.
func (p *Pair) Cancel(ctx context.Context, uid uint64) error {
	var found []*Transfer
	p.Pending.Order.Each(func(t *Transfer) {
		if t.uid == uid && t.pair.Local == p.Local && t.pair.Remote == p.Remote {
			found = append(found, t)
		}
	})
	for _, t := range found {
		if err := t.cancel(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Open returns the records and stages of at most n transfers that have not ended, oldest first.
func (p *Pending) Open(now time.Time, n int) (all []meter.Record, stages []string) {
	for _, t := range p.Order.oldest(n) {
		r := t.Record(InProgress)
		r.Took, r.Open = now.Sub(t.start), true
		all, stages = append(all, r), append(stages, t.Stage())
	}
	return all, stages
}
