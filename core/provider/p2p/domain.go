// SPDX-License-Identifier: MIT

package p2p

import (
	"fmt"

	"mori/core/config"
	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/pathbase"
)

// domains holds the domains of one fabric.
type domains struct {
	pathbase.Domains[*domain]
	opts *Options
}

// A domain is what its data paths share: the engine and the pins of host memory.
type domain struct {
	all    *domains
	table  *regions.Table
	engine *engine
	pins   pathbase.Registrations[*hostPin] // host memory that copies have used
}

func newDomains(opts *Options) *domains {
	ds := &domains{opts: opts}
	ds.Within = opts.releaseWait
	ds.Open = func(key *conn.Domain) *domain { return newDomain(ds, key.MRs()) }
	// A disconnected peer cannot pass the fence, so no device accesses the region now.
	ds.Drop = func(d *domain, region uint64) { d.pins.Drop(region) }
	ds.Close = (*domain).close
	return ds
}

func newDomain(all *domains, table *regions.Table) *domain {
	d := &domain{all: all, table: table, engine: newEngine(all.blocks(), all.opts.Log)}
	log, within := all.opts.Log, all.opts.releaseWait
	d.pins.Table, d.pins.Within = table, within
	d.pins.Stuck = func(region uint64) {
		log.Error("p2p: a device did not finish its copies, host memory stays pinned", "region", region, "after", within)
	}
	d.pins.Failed = func(region uint64, err error) {
		log.Warn("p2p: unpin host memory", "region", region, "error", err)
	}
	return d
}

func (d *domain) close() {
	d.engine.close()
	d.pins.Close()
}

// watch prepares a new domain of the fabric.
func (ds *domains) watch(d *conn.Domain) {
	d.MRs().TakeDevice()
	ds.Watch(d)
}

// attach makes the data path of a new connection.
func (ds *domains) attach(port conn.Port, extra any) (conn.DataPath, error) {
	peer, ok := extra.(*peerProcess)
	if !ok {
		return nil, fmt.Errorf("connection without a handshake: %w", fabric.ErrProtocol)
	}
	dp := newDataPath(port, peer, port.Domain().MRs(), ds.opts)
	dp.domain = ds.Join(port.Domain(), &dp.member)
	go dp.watch()
	return dp, nil
}

// blocks returns the number of thread blocks of a launch, 0 for the default.
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

// pinFor enters the gate of the pin of a region of host memory, for copies of dev. The caller keeps
// the region open. With wait, it pins the region if necessary; otherwise the error may be
// pathbase.ErrNotYet.
func (d *domain) pinFor(mr *regions.MR, dev *device.Device, wait bool) (*hostPin, error) {
	var p *hostPin
	if wait {
		p = d.pins.Find(mr, func() *hostPin { return d.pin(mr.Buffer(), dev) })
	} else if p = d.pins.Find(mr, nil); p == nil {
		return nil, pathbase.ErrNotYet
	}
	switch {
	case p == nil:
		return nil, fmt.Errorf("region %d is being closed", mr.Key().ID)
	case p.err != nil:
		p.use.Leave()
		return nil, p.err
	case p.vendor != dev.Vendor:
		p.use.Leave()
		return nil, fmt.Errorf("region %d is pinned for %v and not for %v", mr.Key().ID, p.vendor, dev.Vendor)
	}
	return p, nil
}

// pin pins a buffer of host memory.
func (d *domain) pin(buf fabric.Buffer, dev *device.Device) *hostPin {
	p := &hostPin{vendor: dev.Vendor}
	if p.pinned, p.err = pin(dev, buf.Addr, buf.Len); p.err != nil {
		d.all.opts.Log.Warn("p2p: host memory uses the socket, which is slower, because it cannot be pinned", "bytes", buf.Len, "error", p.err)
	}
	return p
}
