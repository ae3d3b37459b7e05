// SPDX-License-Identifier: MIT

package p2p

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"mori/core/config"
	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
)

// usualLetGo bounds the wait for a peer or a device: to return a grant, or to end the copies under
// way.
const usualLetGo = 5 * time.Second

// domains are those of one fabric that have endpoints.
type domains struct {
	opts *Options

	mu   sync.Mutex
	open map[*conn.Domain]*domain
}

// A domain is what its data paths share. It lives from the first data path to the last.
type domain struct {
	all    *domains
	key    *conn.Domain
	table  *util.MRTable
	engine *engine

	paths map[*dataPath]struct{} // under domains.mu

	making sync.Mutex // taken before pinsMu: pins are made one at a time
	pinsMu sync.RWMutex
	pins   map[uint64]*hostPin // by region id: of host memory that copies have used
	over   bool
}

// watch has grants revoked when a region closes.
func (ds *domains) watch(d *conn.Domain) {
	t := d.MRs()
	t.TakeDevice()
	t.OnRevoke(func(region uint64) { ds.revoke(d, region) })
	t.OnStuck(func(region uint64) { ds.disconnectHolders(d, region) })
}

// attach makes the data path of a new connection.
func (ds *domains) attach(ep conn.Port, extra any) (conn.DataPath, error) {
	g, ok := extra.(*greeting)
	if !ok {
		return nil, fmt.Errorf("connection without a greeting: %w", fabric.ErrProtocol)
	}
	dp := newDataPath(ep, g, ep.Domain().MRs(), ds.opts)
	ds.join(ep.Domain(), dp)
	go dp.watch()
	return dp, nil
}

func (ds *domains) join(key *conn.Domain, dp *dataPath) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d := ds.open[key]
	if d == nil {
		d = &domain{all: ds, key: key, table: dp.granter.Table, engine: newEngine(ds.blocks(), ds.opts.Log), paths: make(map[*dataPath]struct{}), pins: make(map[uint64]*hostPin)}
		ds.open[key] = d
	}
	d.paths[dp] = struct{}{}
	dp.domain = d
}

// blocks are those of a launch, 0 for the usual.
func (ds *domains) blocks() int {
	if ds.opts.Blocks > 0 {
		return ds.opts.Blocks
	}
	n, err := config.Int(config.P2PBlocks, 0, 0, 1<<16)
	if err != nil {
		ds.opts.Log.Warn("p2p: the usual number of blocks is used", "error", err)
	}
	return n
}

// leave forgets a data path that has stopped; the engine goes with the last one.
func (d *domain) leave(dp *dataPath) {
	d.all.mu.Lock()
	delete(d.paths, dp)
	last := len(d.paths) == 0
	if last {
		delete(d.all.open, d.key)
	}
	d.all.mu.Unlock()
	if !last {
		return
	}
	d.engine.close()
	d.pinsMu.Lock()
	ids := make([]uint64, 0, len(d.pins))
	for id := range d.pins {
		ids = append(ids, id)
	}
	d.over = true
	d.pinsMu.Unlock()
	for _, id := range ids {
		d.unpin(id)
	}
}

func (ds *domains) pathsOf(key *conn.Domain) (d *domain, paths []*dataPath) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d = ds.open[key]; d != nil {
		for dp := range d.paths {
			paths = append(paths, dp)
		}
	}
	return d, paths
}

// revoke revokes the grants of a region and returns when nobody can touch it any more: the grants
// came back, or their connections have ended. A peer that does neither is disconnected; its fence
// then holds.
func (ds *domains) revoke(key *conn.Domain, region uint64) {
	d, paths := ds.pathsOf(key)
	called := make([]grant.Revocation, 0, len(paths))
	for _, dp := range paths {
		called = append(called, grant.Revocation{From: dp.ep, Grants: dp.granter.Revoke(region)})
	}
	grant.AwaitReturns(called, ds.opts.letGo)
	if d != nil {
		d.unpin(region)
	}
}

// disconnectHolders ends the connections that have copies of a region under way and do not move on.
func (ds *domains) disconnectHolders(key *conn.Domain, region uint64) {
	_, paths := ds.pathsOf(key)
	for _, dp := range paths {
		if dp.holds(region) {
			dp.ep.Fail(fmt.Errorf("copies between %s and region %d, which was closed, stand still: %w", dp.ep.Peer(), region, fabric.ErrTimeout))
		}
	}
}

// pinOf is what devices see of a region of host memory, which the caller keeps open, and the caller
// is inside. With wait it is made; otherwise nil may be the answer.
func (d *domain) pinOf(mr *util.MR, dev *device.Device, wait bool) *hostPin {
	d.pinsMu.RLock()
	p := d.pins[mr.Key().ID]
	d.pinsMu.RUnlock()
	if p == nil && wait {
		p = d.makePin(mr, dev)
	}
	if p == nil || !p.use.Enter() {
		return nil
	}
	return p
}

// makePin does not hold pinsMu while a driver pins, which takes long.
func (d *domain) makePin(mr *util.MR, dev *device.Device) *hostPin {
	d.making.Lock()
	defer d.making.Unlock()
	id, buf := mr.Key().ID, mr.Buffer()
	d.pinsMu.RLock()
	p, over := d.pins[id], d.over
	d.pinsMu.RUnlock()
	if p != nil || over {
		return p
	}
	p = &hostPin{vendor: dev.Vendor}
	if p.pinned, p.err = pin(dev, buf.Addr, buf.Len); p.err != nil {
		d.all.opts.Log.Warn("p2p: host memory goes by the socket, which is slower: it cannot be pinned", "bytes", buf.Len, "error", p.err)
	}
	d.pinsMu.Lock()
	d.pins[id] = p
	d.pinsMu.Unlock()
	again, err := d.table.Acquire(mr.Key(), 0)
	if err != nil { // it is being closed, and unpin may have been before
		d.unpin(id)
		return nil
	}
	again.Release()
	return p
}

// unpin gives up what devices see of a region, once no copy uses it. It is not given up if they do
// not end in time.
func (d *domain) unpin(region uint64) {
	d.pinsMu.Lock()
	p := d.pins[region]
	delete(d.pins, region)
	d.pinsMu.Unlock()
	if p == nil {
		return
	}
	t := time.NewTimer(d.all.opts.letGo)
	defer t.Stop()
	select {
	case <-p.use.Shut():
	case <-t.C:
		d.all.opts.Log.Error("p2p: a device does not end its copies: host memory stays pinned", "region", region, "after", d.all.opts.letGo)
		return
	}
	if p.pinned == nil {
		return
	}
	if err := p.pinned.release(); err != nil {
		d.all.opts.Log.Warn("p2p: unpin host memory", "region", region, "error", err)
	}
}

// holds reports whether a copy of m under way keeps a local region open.
func (dp *dataPath) holds(region uint64) bool {
	dp.mu.Lock()
	defer dp.mu.Unlock()
	for f := range dp.live {
		if slices.Contains(f.regions, region) {
			return true
		}
	}
	return false
}
