// SPDX-License-Identifier: MIT

package conn

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/layer/rdm"
	"mori/core/fabric/util"
	"mori/core/fabric/util/atomics"
	"mori/core/fabric/util/regions"
	"mori/core/provider/internal/staging"
)

// A Domain holds the memory regions, the queues and the endpoints of one device.
type Domain struct {
	util.DomainBase // counts endpoints and queues

	fabric  *Fabric
	regions *regions.Table
	imports *regions.Imports
	devices staging.Devices

	mu        sync.Mutex // protects what follows
	endpoints map[*Endpoint]struct{}
	closed    bool // registration is refused from now on
}

var (
	_ fabric.Domain        = (*Domain)(nil)
	_ fabric.AtomicQuerier = (*Domain)(nil)
)

// newDomain makes a domain. Device memory may be registered in it if hmem is true or the provider
// always supports it.
func newDomain(f *Fabric, hmem bool) *Domain {
	d := &Domain{fabric: f, regions: regions.NewTable(), imports: regions.NewImports(), endpoints: map[*Endpoint]struct{}{}}
	d.CheckAddr = f.cfg.CheckAddr
	d.regions.OnStuck(d.disconnectHolders)
	if hmem {
		d.regions.TakeDevice()
	}
	if f.cfg.OpenDomain != nil {
		f.cfg.OpenDomain(d)
	}
	return d
}

// MRs returns the table of the domain's own regions.
func (d *Domain) MRs() *regions.Table { return d.regions }

// Imports returns the table of imported peers' regions.
func (d *Domain) Imports() *regions.Imports { return d.imports }

// adopt counts a child, or returns an error if the domain is closed.
func (d *Domain) adopt(what string) error {
	if err := d.Adopt(); err != nil {
		return fmt.Errorf("%s: domain: %w", what, err)
	}
	return nil
}

// Endpoint makes an endpoint; see fabric.Domain. An EPRDM endpoint listens at in.Src.
func (d *Domain) Endpoint(in *fabric.Info) (fabric.Endpoint, error) {
	if in == nil {
		in = &fabric.Info{}
	}
	if in.EPType != 0 && in.EPType != fabric.EPMsg && in.EPType != fabric.EPRDM {
		return nil, fmt.Errorf("make endpoint of type %d: %w", in.EPType, fabric.ErrNoSys)
	}
	if err := d.adopt("make endpoint"); err != nil {
		return nil, err
	}
	if in.EPType == fabric.EPRDM {
		return d.datagrams(fabric.Info{Src: in.Src}), nil
	}
	return d.connected(), nil
}

// connected makes an EPMsg endpoint. adopt has already counted it.
func (d *Domain) connected() *Endpoint {
	ep := newEndpoint(d)
	d.mu.Lock()
	d.endpoints[ep] = struct{}{}
	d.mu.Unlock()
	return ep
}

func (d *Domain) forget(ep *Endpoint) {
	d.mu.Lock()
	delete(d.endpoints, ep)
	d.mu.Unlock()
	d.Leave()
}

// QueryAtomic reports whether an atomic op is supported; see fabric.AtomicQuerier.
func (d *Domain) QueryAtomic(kind fabric.OpKind, op fabric.AtomicOp, t fabric.DataType) (int, error) {
	return atomics.Query(kind, op, t)
}

// Reg registers a buffer; see fabric.Domain.
func (d *Domain) Reg(buf fabric.Buffer, access fabric.Access, key fabric.RegionKey) (fabric.MR, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("register %d bytes: domain: %w", buf.Len, fabric.ErrClosed)
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
	if d.closed {
		return nil, fmt.Errorf("import region: domain: %w", fabric.ErrClosed)
	}
	r, err := d.imports.Import(raw)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// disconnectHolders ends the connections whose peers hold a region open and have stalled.
func (d *Domain) disconnectHolders(id uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for ep := range d.endpoints {
		if ep.running() && slices.ContainsFunc(ep.channels.all(), func(c *channel) bool { return c.holds(id) }) {
			ep.fail(fmt.Errorf("%s is stalled in region %d, which was closed: %w", ep.peer, id, fabric.ErrTimeout))
		}
	}
}

// Close frees the domain, or returns ErrBusy; see fabric.Domain.
func (d *Domain) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if own, peers := d.regions.Len(), d.imports.Len(); own+peers > 0 && !d.closed {
		return fmt.Errorf("close domain with %d regions and %d of peers: %w", own, peers, fabric.ErrBusy)
	}
	first, err := d.Parent.Close()
	if err != nil {
		return err
	}
	d.closed = true
	err = d.devices.Close()
	if first {
		d.fabric.Leave()
	}
	return err
}

// datagrams makes an EPRDM endpoint. adopt has already counted it.
func (d *Domain) datagrams(in fabric.Info) fabric.Endpoint {
	return rdm.New(rdm.Config{
		Carrier: func() (rdm.Carrier, error) {
			if err := d.adopt("make carrier"); err != nil {
				return nil, err
			}
			return d.connected(), nil
		},
		Listen: func() (fabric.Listener, error) { return d.fabric.Listen(context.Background(), &in) },
		Limits: d.fabric.cfg.Info.Limits,
		Log:    d.fabric.cfg.Logger,
		Leave:  d.Leave,
	})
}
