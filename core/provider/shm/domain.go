// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
)

// domains are those of one fabric that have endpoints.
type domains struct {
	opts *Options

	mu   sync.Mutex
	open map[*conn.Domain]*domain
}

// A domain is what its movers share: the workers, and the regions that are lent. It lives from the first mover to the last.
type domain struct {
	all  *domains
	key  *conn.Domain
	pool *pool

	movers map[*mover]struct{} // under domains.mu
}

// watch has loans called in when a region closes.
func (ds *domains) watch(d *conn.Domain) {
	d.MRs().OnRevoke(func(region uint64) { ds.revoke(d, region) })
}

// attach makes the mover of a new connection.
func (ds *domains) attach(ep conn.Port, extra any) (conn.DataPath, error) {
	g, ok := extra.(*greeting)
	if !ok {
		return nil, fmt.Errorf("connection without a greeting: %w", fabric.ErrProtocol)
	}
	m := newMover(ep, g, ds.opts)
	ds.adopt(ep.Domain(), ep.Domain().MRs(), m)
	return m, nil
}

// adopt sets a new mover to work.
func (ds *domains) adopt(key *conn.Domain, table *util.MRTable, m *mover) {
	m.lender.Table, m.device = table, table.TakesDevice()
	ds.join(key, m)
	m.inbox.start()
	go m.watch()
}

func (ds *domains) join(key *conn.Domain, m *mover) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d := ds.open[key]
	if d == nil {
		d = &domain{all: ds, key: key, pool: newPool(), movers: make(map[*mover]struct{})}
		ds.open[key] = d
	}
	d.movers[m] = struct{}{}
	m.domain = d
}

// leave forgets a mover that has stopped; the workers go with the last one.
func (d *domain) leave(m *mover) {
	d.all.mu.Lock()
	delete(d.movers, m)
	last := len(d.movers) == 0
	if last {
		delete(d.all.open, d.key)
	}
	d.all.mu.Unlock()
	if last {
		d.pool.close()
	}
}

// revoke calls in what was lent of a region and returns when nobody can touch it any more: the loans came back, or their connections
// have ended. Who answers neither is disconnected; its fence then holds.
func (ds *domains) revoke(key *conn.Domain, region uint64) {
	ds.mu.Lock()
	var movers []*mover
	if d := ds.open[key]; d != nil {
		for m := range d.movers {
			movers = append(movers, m)
		}
	}
	ds.mu.Unlock()
	called := make([]grant.Revocation, 0, len(movers))
	for _, m := range movers {
		called = append(called, grant.Revocation{From: m.ep, Grants: m.lender.Revoke(region)})
	}
	grant.AwaitReturns(called, letGo)
}
