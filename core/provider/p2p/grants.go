// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/grant"
)

// A regionGrant is a region of the peer that this side may reach: one that it asked for, or a share
// of device memory, which is granted unasked so that we copy on the peer's behalf.
type regionGrant = grant.Grant[*reach]

// A reach is a place that was granted, and how the devices here see it.
type reach struct {
	place

	nearest atomic.Pointer[device.Device]

	opening sync.Mutex
	opened  atomic.Pointer[[]mapping] // one for each device that was asked to reach the place
}

// initGrants prepares both sides of grants.
func (dp *dataPath) initGrants(table *regions.Table) {
	dp.out.Send = dp.send
	b, d := &dp.holder, &dp.granter
	b.Out, b.Parse, b.Over, b.GaveUp, b.Shares = &dp.out, parseReach, dp.unreach, dp.gaveUp, true
	d.Out, d.Table = &dp.out, table
	d.Describe = func(mr *regions.MR) ([]byte, error) {
		p := describe(mr, dp.greet.same)
		return p.encode(), nil
	}
}

func parseReach(b []byte) (*reach, error) {
	p, err := parsePlace(b)
	return &reach{place: p}, err
}

// unreach closes what was opened of a region that goes back.
func (dp *dataPath) unreach(l *regionGrant) {
	if err := l.Region.close(); err != nil {
		dp.log.Warn("p2p: give back what was opened of a peer's region", "peer", dp.ep.Peer(), "error", err)
	}
}

// near is place.near, asked once.
func (r *reach) near() (*device.Device, error) {
	if d := r.nearest.Load(); d != nil {
		return d, nil
	}
	d, err := r.place.near()
	if err == nil {
		r.nearest.Store(d)
	}
	return d, err
}

// mapped is the place as d sees it, if that was found out.
func (r *reach) mapped(d *device.Device) (mapping, bool) {
	if all := r.opened.Load(); all != nil {
		for _, m := range *all {
			if m.dev == d {
				return m, true
			}
		}
	}
	return mapping{}, false
}

// open is mapped, finding it out. It may take the time of a driver's call, and the caller is inside
// the grant.
func (r *reach) open(d *device.Device, sameProcess bool) mapping {
	r.opening.Lock()
	defer r.opening.Unlock()
	if m, ok := r.mapped(d); ok {
		return m
	}
	m := r.place.open(d, sameProcess)
	var all []mapping
	if old := r.opened.Load(); old != nil {
		all = append(all, *old...)
	}
	all = append(all, m)
	r.opened.Store(&all)
	return m
}

// close gives back what was opened. Nobody is inside the grant any more.
func (r *reach) close() error {
	r.opening.Lock()
	defer r.opening.Unlock()
	all := r.opened.Swap(nil)
	if all == nil {
		return nil
	}
	var errs []error
	for _, m := range *all {
		if m.undo != nil {
			errs = append(errs, m.undo())
		}
	}
	return errors.Join(errs...)
}

// shareOf is the share of a region of device memory that the caller holds open, granted now if it
// was not. It is an error that wraps ErrNotSupported if there cannot be one.
func (dp *dataPath) shareOf(mr *regions.MR) (*grant.Issued, error) {
	p := describe(mr, false)
	if !p.exported() {
		return nil, fmt.Errorf("export region %d: %s: %w", mr.Key().ID, p.why, fabric.ErrNotSupported)
	}
	return dp.granter.Share(mr, p.encode())
}
