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
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/pathbase"
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
	table  *regions.Table
	engine *engine

	paths map[*dataPath]struct{} // under domains.mu

	pins pathbase.Registrations[*hostPin] // host memory that copies have used
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
		d = &domain{
			all: ds, key: key, table: dp.granter.Table, engine: newEngine(ds.blocks(), ds.opts.Log),
			paths: make(map[*dataPath]struct{}),
		}
		d.pins.Table, d.pins.Within = d.table, ds.opts.letGo
		d.pins.Stuck, d.pins.Failed = d.pinStuck, d.unpinFailed
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
	d.pins.Close()
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

// revoke revokes the grants of a region and returns when no peer and no device can touch it any
// more. The fence of a peer that is disconnected holds.
func (ds *domains) revoke(key *conn.Domain, region uint64) {
	d, all := ds.membersOf(key)
	pathbase.Revoke(all, region, ds.opts.letGo)
	if d != nil {
		d.pins.Drop(region)
	}
}

// disconnectHolders ends the connections that have copies of a region under way and do not move on.
func (ds *domains) disconnectHolders(key *conn.Domain, region uint64) {
	_, all := ds.membersOf(key)
	pathbase.DisconnectHolders(all, region)
}

// pinOf is what devices see of a region of host memory, which the caller keeps open, and the caller
// is inside. With wait it is made; otherwise nil may be the answer.
func (d *domain) pinOf(mr *regions.MR, dev *device.Device, wait bool) *hostPin {
	if !wait {
		return d.pins.Find(mr, nil)
	}
	return d.pins.Find(mr, func() *hostPin {
		p, buf := &hostPin{vendor: dev.Vendor}, mr.Buffer()
		if p.pinned, p.err = pin(dev, buf.Addr, buf.Len); p.err != nil {
			d.all.opts.Log.Warn("p2p: host memory goes by the socket, which is slower: it cannot be pinned", "bytes", buf.Len, "error", p.err)
		}
		return p
	})
}

// pinStuck reports a region whose copies do not end: it stays pinned.
func (d *domain) pinStuck(region uint64) {
	d.all.opts.Log.Error("p2p: a device does not end its copies: host memory stays pinned", "region", region, "after", d.all.opts.letGo)
}

func (d *domain) unpinFailed(region uint64, err error) {
	d.all.opts.Log.Warn("p2p: unpin host memory", "region", region, "error", err)
}

// holds reports whether a copy of dp under way keeps a local region open.
func (dp *dataPath) holds(region uint64) bool {
	return dp.pending.Any(func(f *flight) bool { return slices.Contains(f.regions, region) })
}
