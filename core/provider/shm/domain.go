// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
)

// domains holds the domains of one fabric that have endpoints.
type domains struct {
	opts *Options

	mu   sync.Mutex
	open map[*conn.Domain]*domain
}

// A domain is what its data paths share: the workers and the granted regions. It exists from its
// first data path to its last.
type domain struct {
	all  *domains
	key  *conn.Domain
	pool *pool

	paths map[*dataPath]struct{} // under domains.mu
}

// watch makes the domain revoke a region's grants when the region closes.
func (ds *domains) watch(d *conn.Domain) {
	d.MRs().OnRevoke(func(region uint64) { ds.revoke(d, region) })
}

// attach makes the data path of a new connection.
func (ds *domains) attach(ep conn.Port, extra any) (conn.DataPath, error) {
	g, ok := extra.(*greeting)
	if !ok {
		return nil, fmt.Errorf("connection without a handshake: %w", fabric.ErrProtocol)
	}
	dp := newDataPath(ep, g, ds.opts)
	ds.adopt(ep.Domain(), ep.Domain().MRs(), dp)
	return dp, nil
}

// adopt starts a new data path.
func (ds *domains) adopt(key *conn.Domain, table *regions.Table, dp *dataPath) {
	dp.granter.Table, dp.device = table, table.TakesDevice()
	ds.join(key, dp)
	dp.inbox.start()
	go dp.watch()
}

func (ds *domains) join(key *conn.Domain, dp *dataPath) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d := ds.open[key]
	if d == nil {
		d = &domain{all: ds, key: key, pool: newPool(), paths: make(map[*dataPath]struct{})}
		ds.open[key] = d
	}
	d.paths[dp] = struct{}{}
	dp.domain = d
}

// leave removes a data path that has stopped. The last one stops the workers.
func (d *domain) leave(dp *dataPath) {
	d.all.mu.Lock()
	delete(d.paths, dp)
	last := len(d.paths) == 0
	if last {
		delete(d.all.open, d.key)
	}
	d.all.mu.Unlock()
	if last {
		d.pool.close()
	}
}

// revoke revokes the grants of a region. It returns when no peer can access the region any more:
// the grants were returned, or their connections have ended. A peer that does neither is
// disconnected, and its fence then blocks it.
func (ds *domains) revoke(key *conn.Domain, region uint64) {
	ds.mu.Lock()
	var paths []*dataPath
	if d := ds.open[key]; d != nil {
		for dp := range d.paths {
			paths = append(paths, dp)
		}
	}
	ds.mu.Unlock()
	called := make([]grant.Revocation, 0, len(paths))
	for _, dp := range paths {
		called = append(called, grant.Revocation{From: dp.ep, Grants: dp.granter.Revoke(region)})
	}
	grant.AwaitReturns(called, letGo)
}
