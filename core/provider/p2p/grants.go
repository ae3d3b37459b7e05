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
	"mori/core/provider/internal/pathbase"
)

// A regionGrant is a region of the peer that this side may access. Either this side requested it,
// or it is a share of device memory, which the peer granted without a request so that this side
// copies for it.
type regionGrant = grant.Grant[*reach]

// grants are the grants of a connection, with the mappings of the peer's regions.
type grants struct {
	pathbase.Grants[*reach]

	path   *dataPath
	gaveUp chan struct{} // closed when stop stops waiting for accesses
}

func (g *grants) init(dp *dataPath, table *regions.Table) {
	g.path, g.gaveUp = dp, make(chan struct{})
	g.Init(&dp.ops.Ops, table, g.describe, parseReach)
	g.Held.Over, g.Held.GaveUp, g.Held.Shares = g.close, g.gaveUp, true
}

func (g *grants) describe(mr *regions.MR) ([]byte, error) {
	r := describe(mr, g.path.peer.same)
	return r.encode(), nil
}

func parseReach(b []byte) (*reach, error) {
	r, err := parseRegionRef(b)
	return &reach{regionRef: r}, err
}

// share returns the share of a region of device memory that the caller holds open. With wait, it
// grants the share if necessary. It returns ErrNotSupported if the region cannot be exported.
func (g *grants) share(mr *regions.MR, wait bool) (*grant.Issued, error) {
	if s := g.Given.Shared(mr.Desc()); s != nil {
		return s, nil
	}
	if !wait {
		return nil, pathbase.ErrNotYet
	}
	r := describe(mr, false)
	if !r.exported() {
		return nil, fmt.Errorf("export region %d: %s: %w", mr.Key().ID, r.why, fabric.ErrNotSupported)
	}
	return g.Given.Share(mr, r.encode())
}

// close closes the mappings of a region that the peer revokes.
func (g *grants) close(l *regionGrant) {
	if err := l.Region.close(); err != nil {
		g.path.log.Warn("p2p: close what was opened of a peer's region", "peer", g.path.port.Peer(), "error", err)
	}
}

// stop ends all grants. ended says whether the copies have ended. If so, stop closes the mappings
// of the peer's regions; otherwise the copies may still access them.
func (g *grants) stop(ended bool) {
	g.Given.Stop()
	left := g.Held.Stop()
	if ended {
		g.Held.Wait() // no access to the granted regions is left
	}
	close(g.gaveUp)
	g.Held.Wait()
	if !ended {
		return
	}
	for _, l := range left {
		if l.Use.Shut(); l.Granted() {
			g.close(l)
		}
	}
}

// A reach is a region of the peer and its mappings on the devices here.
type reach struct {
	regionRef

	nearest atomic.Pointer[device.Device]

	opening sync.Mutex
	opened  atomic.Pointer[[]mapping] // one for each device that open was called for
}

// near caches regionRef.near.
func (r *reach) near() (*device.Device, error) {
	if d := r.nearest.Load(); d != nil {
		return d, nil
	}
	d, err := r.regionRef.near()
	if err == nil {
		r.nearest.Store(d)
	}
	return d, err
}

// mapped returns d's mapping of the region, if open was called for d.
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

// open gives d access to the region, once. It may call the driver. The caller holds the grant.
func (r *reach) open(d *device.Device, sameProcess bool) mapping {
	r.opening.Lock()
	defer r.opening.Unlock()
	if m, ok := r.mapped(d); ok {
		return m
	}
	m := r.regionRef.open(d, sameProcess)
	var all []mapping
	if old := r.opened.Load(); old != nil {
		all = append(all, *old...)
	}
	all = append(all, m)
	r.opened.Store(&all)
	return m
}

// close undoes open. The grant has no accesses any more.
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
