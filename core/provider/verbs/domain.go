// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/pathbase"
)

// usualLetGo bounds the wait for a peer or a device: to return a grant, or to end the work under
// way.
const usualLetGo = 5 * time.Second

// domains are those of one fabric that have endpoints, with what they share: the devices.
type domains struct {
	opts     *Options
	settings Settings
	nics     []*nic
	spares   spares
	leasing  chan struct{} // has an element for each op that has its memory registered

	mu      sync.Mutex
	open    map[*conn.Domain]*domain
	leaving map[*domain]struct{} // their last data paths have left, and devices are forgetting their regions
}

// A domain is what its data paths share. It lives from the first data path to the last, or, once a
// region of it was prefetched, as long as the stream's: what devices were shown then stays while
// connections come and go.
type domain struct {
	all     *domains
	key     *conn.Domain
	table   *regions.Table
	regions pathbase.Registrations[*registration] // as devices know them

	paths map[*dataPath]struct{} // under domains.mu
	kept  bool                   // likewise: there is more than data paths need
	over  chan struct{}          // closed when devices know nothing of it any more
}

// watch has grants revoked when a region closes.
func (ds *domains) watch(d *conn.Domain) {
	t := d.MRs()
	t.OnPrefetch(func(mr *regions.MR) error { return ds.prefetch(d, mr) })
	t.OnRevoke(func(region uint64) { ds.revoke(d, region) })
	t.OnStuck(func(region uint64) { ds.disconnectHolders(d, region) })
}

// attach makes the data path of a new connection.
func (ds *domains) attach(ep conn.Port, extra any) (conn.DataPath, error) {
	dialed, ok := extra.(bool)
	if !ok {
		return nil, fmt.Errorf("connection without a prelude: %w", fabric.ErrProtocol)
	}
	if err := ds.anyUp(); err != nil {
		return nil, err
	}
	dp := newDataPath(ep, ds, ep.Domain().MRs())
	dp.dialed = dialed
	ds.join(ep.Domain(), dp)
	dp.beginSetup()
	return dp, nil
}

// anyUp is nil if a device could be used now; then a connection is worth making.
func (ds *domains) anyUp() error {
	var why []error
	for _, n := range ds.nics {
		err := n.up()
		if err == nil {
			return nil
		}
		why = append(why, err)
	}
	return fmt.Errorf("no RDMA device to use: %w", errors.Join(why...))
}

func (ds *domains) join(key *conn.Domain, dp *dataPath) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	dp.domain = ds.get(key)
	dp.domain.paths[dp] = struct{}{}
}

// get finds a domain, or makes it. With mu held.
func (ds *domains) get(key *conn.Domain) *domain {
	d := ds.open[key]
	if d == nil {
		d = &domain{all: ds, key: key, table: key.MRs(), paths: make(map[*dataPath]struct{}), over: make(chan struct{})}
		d.initRegions()
		ds.open[key] = d
	}
	return d
}

// prefetch shows a region to the devices, before there is a connection that needs it.
func (ds *domains) prefetch(key *conn.Domain, mr *regions.MR) error {
	ds.mu.Lock()
	d := ds.get(key)
	d.kept = true
	ds.mu.Unlock()
	g := d.registrationOf(mr, true)
	if g == nil {
		return fmt.Errorf("it is being closed: %w", fabric.ErrNoKey)
	}
	defer g.use.Leave()
	return g.err
}

// leave forgets a data path that has stopped; what devices were shown goes with the last one.
func (d *domain) leave(dp *dataPath) {
	d.all.mu.Lock()
	delete(d.paths, dp)
	last := len(d.paths) == 0 && !d.kept // what was prefetched goes when its region closes
	if last {
		delete(d.all.open, d.key)
		d.all.leaving[d] = struct{}{}
	}
	d.all.mu.Unlock()
	if !last {
		return
	}
	d.regions.Close()
	close(d.over)
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	delete(d.all.leaving, d)
}

// awaitLeaving waits until devices have forgotten what data paths that have left knew of a domain.
func (ds *domains) awaitLeaving(key *conn.Domain) {
	var waits []chan struct{}
	ds.mu.Lock()
	for d := range ds.leaving {
		if d.key == key {
			waits = append(waits, d.over)
		}
	}
	ds.mu.Unlock()
	for _, over := range waits {
		<-over
	}
}

// membersOf returns the domain of a key, nil without one, and its data paths.
func (ds *domains) membersOf(key *conn.Domain) (d *domain, all []pathbase.Member) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d = ds.open[key]; d != nil {
		for dp := range d.paths {
			all = append(all, pathbase.Member{Conn: dp.ep, Granter: &dp.granter, Holds: dp.holds})
		}
	}
	return d, all
}

// revoke revokes the grants of a region, and takes it from the devices when no peer can touch it
// any more. The queue pairs of a peer that is disconnected are gone then.
func (ds *domains) revoke(key *conn.Domain, region uint64) {
	d, all := ds.membersOf(key)
	pathbase.Revoke(all, region, ds.opts.letGo)
	if d != nil {
		d.regions.Drop(region)
	}
	ds.awaitLeaving(key)
}

// disconnectHolders ends the connections that have work with a region under way and do not move on.
func (ds *domains) disconnectHolders(key *conn.Domain, region uint64) {
	_, all := ds.membersOf(key)
	pathbase.DisconnectHolders(all, region)
}
