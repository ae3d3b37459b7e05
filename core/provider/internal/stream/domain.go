// SPDX-License-Identifier: MIT

package stream

import (
	"fmt"
	"slices"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// A Domain holds the memory regions, the queues and the endpoints of one device.
type Domain struct {
	fabric  *Fabric
	regions *util.MRTable
	imports *util.Imports

	mu        sync.Mutex // protects what follows
	endpoints map[*Endpoint]struct{}
	closed    bool
}

var _ fabric.Domain = (*Domain)(nil)

func newDomain(f *Fabric) *Domain {
	d := &Domain{fabric: f, regions: util.NewMRTable(), imports: util.NewImports(), endpoints: map[*Endpoint]struct{}{}}
	d.regions.OnStuck(d.disconnectHolders)
	if f.cfg.OpenDomain != nil {
		f.cfg.OpenDomain(d)
	}
	return d
}

// MRs are the domain's own regions.
func (d *Domain) MRs() *util.MRTable { return d.regions }

// Imports are the peers' regions.
func (d *Domain) Imports() *util.Imports { return d.imports }

func (d *Domain) check(what string) error {
	if d.closed {
		return fmt.Errorf("%s: domain: %w", what, fabric.ErrClosed)
	}
	return nil
}

// Endpoint makes an unconnected endpoint; see fabric.Domain.
func (d *Domain) Endpoint(in *fabric.Info) (fabric.Endpoint, error) {
	if in != nil && in.EPType != 0 && in.EPType != fabric.EPMsg {
		return nil, fmt.Errorf("make endpoint of type %d: %w", in.EPType, fabric.ErrNoSys)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check("make endpoint"); err != nil {
		return nil, err
	}
	ep := newEndpoint(d)
	d.endpoints[ep] = struct{}{}
	return ep, nil
}

func (d *Domain) forget(ep *Endpoint) {
	d.mu.Lock()
	delete(d.endpoints, ep)
	d.mu.Unlock()
}

// CQ opens a completion queue; see fabric.Domain.
func (d *Domain) CQ(size int) (fabric.CQ, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check("open completion queue"); err != nil {
		return nil, err
	}
	return util.NewCQ(size)
}

// Reg registers a buffer; see fabric.Domain.
func (d *Domain) Reg(buf fabric.Buffer, access fabric.Access, key fabric.RegionKey) (fabric.MR, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check("register memory"); err != nil {
		return nil, err
	}
	mr, err := d.regions.Register(buf, access, key)
	if err != nil {
		return nil, err
	}
	return mr, nil
}

// Import makes a peer's region usable; see fabric.Domain.
func (d *Domain) Import(raw []byte) (fabric.RemoteMR, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check("import region"); err != nil {
		return nil, err
	}
	r, err := d.imports.Import(raw)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// disconnectHolders ends the connections whose peers keep a region open and do not move on.
func (d *Domain) disconnectHolders(id uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for ep := range d.endpoints {
		if ep.running() && slices.ContainsFunc(ep.links, func(l *link) bool { return l.holds(id) }) {
			ep.Fail(fmt.Errorf("%s stands still in region %d that was closed: %w", ep.peer, id, fabric.ErrTimeout))
		}
	}
}

// Close frees the domain, or answers ErrBusy; see fabric.Domain.
func (d *Domain) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if n, m := len(d.endpoints), d.regions.Len(); n+m > 0 {
		return fmt.Errorf("close domain with %d endpoints and %d regions: %w", n, m, fabric.ErrBusy)
	}
	d.closed = true
	d.fabric.release()
	return nil
}
