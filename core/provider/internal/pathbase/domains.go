// SPDX-License-Identifier: MIT

package pathbase

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
)

// ReleaseWait bounds the wait for a peer to return a grant, or for a device to end its work in
// progress. Tests use shorter waits.
const ReleaseWait = 5 * time.Second

// A Conn is the part of a conn.Port that a Member needs.
type Conn interface {
	Fail(err error) // ends the connection, which ends all its grants in bounded time
	Peer() fabric.Addr
}

// A Member is a data path as seen by its domain.
type Member struct {
	Path  conn.DataPath
	Conn  Conn
	Given *grant.Granter
	Holds func(region uint64) bool // reports whether a pending op holds a local region open
}

// Domains holds the domains of one fabric that have data paths. D is what the data paths of a
// domain share. It exists from the first data path to the last or, after Keep, as long as the
// domain.
type Domains[D any] struct {
	Within time.Duration            // bounds the wait for a peer to return a grant
	Open   func(key *conn.Domain) D // makes a D; it does not block
	Drop   func(d D, region uint64) // removes a region from the devices; no peer accesses it any more
	Close  func(d D)                // the last data path has left

	mu      sync.Mutex // protects what follows
	open    map[*conn.Domain]*shared[D]
	leaving map[*shared[D]]struct{} // those whose Close is running
}

// A shared is a D and its data paths.
type shared[D any] struct {
	d       D
	key     *conn.Domain
	members map[*Member]struct{}
	kept    bool          // d stays even without a data path
	over    chan struct{} // closed when Close has returned
}

// Watch revokes the grants of each region of d when the region closes.
func (ds *Domains[D]) Watch(d *conn.Domain) {
	t := d.MRs()
	t.OnRevoke(func(region uint64) { ds.revoke(d, region) })
	t.OnStuck(func(region uint64) { ds.disconnectHolders(d, region) })
}

// Join adds a data path to a domain.
func (ds *Domains[D]) Join(key *conn.Domain, m *Member) D {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	s := ds.get(key)
	s.members[m] = struct{}{}
	return s.d
}

// Keep returns the D of a domain and keeps it even without a data path.
func (ds *Domains[D]) Keep(key *conn.Domain) D {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	s := ds.get(key)
	s.kept = true
	return s.d
}

// get finds or makes a shared. The caller holds mu.
func (ds *Domains[D]) get(key *conn.Domain) *shared[D] {
	s := ds.open[key]
	if s == nil {
		if ds.open == nil {
			ds.open, ds.leaving = make(map[*conn.Domain]*shared[D]), make(map[*shared[D]]struct{})
		}
		s = &shared[D]{d: ds.Open(key), key: key, members: make(map[*Member]struct{}), over: make(chan struct{})}
		ds.open[key] = s
	}
	return s
}

// Leave removes a data path that has stopped.
func (ds *Domains[D]) Leave(m *Member) {
	s := ds.remove(m)
	if s == nil {
		return
	}
	ds.Close(s.d)
	close(s.over)
	ds.mu.Lock()
	defer ds.mu.Unlock()
	delete(ds.leaving, s)
}

// remove returns the shared whose last data path was m, or nil.
func (ds *Domains[D]) remove(m *Member) *shared[D] {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	for key, s := range ds.open {
		if _, ok := s.members[m]; !ok {
			continue
		}
		delete(s.members, m)
		if len(s.members) > 0 || s.kept {
			return nil
		}
		delete(ds.open, key)
		ds.leaving[s] = struct{}{}
		return s
	}
	return nil
}

// revoke revokes all grants of a region. It returns when no peer and no device can access the
// region any more: the grants were returned, or their connections have ended. A peer that does
// neither within the time is disconnected.
func (ds *Domains[D]) revoke(key *conn.Domain, region uint64) {
	s, members := ds.membersOf(key)
	revoked := make([]grant.Revocation, 0, len(members))
	for _, m := range members {
		revoked = append(revoked, grant.Revocation{From: m.Conn, Grants: m.Given.Revoke(region)})
	}
	grant.AwaitReturns(revoked, ds.Within)
	if s != nil {
		ds.Drop(s.d, region)
	}
	ds.awaitLeaving(key)
}

// disconnectHolders ends the connections whose pending ops hold a closed region open and make no
// progress.
func (ds *Domains[D]) disconnectHolders(key *conn.Domain, region uint64) {
	_, members := ds.membersOf(key)
	for _, m := range members {
		if m.Holds(region) {
			m.Conn.Fail(fmt.Errorf("work between %s and region %d, which was closed, is stalled: %w", m.Conn.Peer(), region, fabric.ErrTimeout))
		}
	}
}

// Members returns the data paths of all domains.
func (ds *Domains[D]) Members() []*Member {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	var all []*Member
	for _, s := range ds.open {
		all = slices.AppendSeq(all, maps.Keys(s.members))
	}
	return all
}

// membersOf returns the shared of a domain, or nil if it has none, and its data paths.
func (ds *Domains[D]) membersOf(key *conn.Domain) (*shared[D], []*Member) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	s := ds.open[key]
	if s == nil {
		return nil, nil
	}
	return s, slices.Collect(maps.Keys(s.members))
}

// awaitLeaving waits until Close has returned for the D that earlier data paths of a domain shared.
func (ds *Domains[D]) awaitLeaving(key *conn.Domain) {
	var waits []chan struct{}
	ds.mu.Lock()
	for s := range ds.leaving {
		if s.key == key {
			waits = append(waits, s.over)
		}
	}
	ds.mu.Unlock()
	for _, over := range waits {
		<-over
	}
}
