// SPDX-License-Identifier: MIT

// Package quota is a provider that lives outside of mori's module: a layer over another provider
// that bounds how many bytes a domain may have registered. It shows all that a provider from
// elsewhere needs: fabric.Provider, a name, versions, and fabrictest to prove itself.
//
//	r := fabric.NewRegistry()
//	err := r.Register(quota.Over(tcp.New(tcp.Options{}), 1<<30))
//
// Its name is "quota;tcp" over tcp. Everything but registration is the provider's below.
package quota

import (
	"context"
	"fmt"
	"sync"

	"mori/core/fabric"
)

// A Provider bounds the registered memory of the domains of another.
type Provider struct {
	base  fabric.Provider
	bytes uint64
}

// Over makes a provider over base whose domains register up to bytes at a time.
func Over(base fabric.Provider, bytes uint64) *Provider { return &Provider{base, bytes} }

// Name is "quota;" and the name of the provider below.
func (p *Provider) Name() string { return "quota;" + p.base.Name() }

// Version is this provider's, and the API's that it was written against.
func (p *Provider) Version() (provider, api fabric.Version) {
	return fabric.Version{Major: 0, Minor: 1}, fabric.Version{Major: 1, Minor: 0}
}

// GetInfo is what the provider below answers, in this one's name; see fabric.Provider.
func (p *Provider) GetInfo(ctx context.Context, node, service string, hints *fabric.Info) ([]*fabric.Info, error) {
	below := hints.Clone()
	if hints == nil {
		below = nil
	} else if below.Provider == p.Name() {
		below.Provider = p.base.Name()
	} else if below.Provider != "" {
		return nil, fmt.Errorf("%s is not %s: %w", p.Name(), below.Provider, fabric.ErrNoData)
	}
	infos, err := p.base.GetInfo(ctx, node, service, below)
	for _, in := range infos {
		in.Provider = p.Name()
		in.ProviderVersion, _ = p.Version()
	}
	return infos, err
}

// Open opens the fabric below; see fabric.Provider.
func (p *Provider) Open(ctx context.Context, in *fabric.Info) (fabric.Fabric, error) {
	f, err := p.base.Open(ctx, p.below(in))
	if err != nil {
		return nil, err
	}
	return &network{f, p}, nil
}

func (p *Provider) below(in *fabric.Info) *fabric.Info {
	out := in.Clone()
	out.Provider = p.base.Name()
	return out
}

type network struct {
	fabric.Fabric
	provider *Provider
}

func (f *network) Domain(ctx context.Context, in *fabric.Info) (fabric.Domain, error) {
	d, err := f.Fabric.Domain(ctx, f.provider.below(in))
	if err != nil {
		return nil, err
	}
	b := &budget{Domain: d, left: f.provider.bytes}
	if q, ok := d.(fabric.AtomicQuerier); ok {
		return &atomicBudget{b, q}, nil
	}
	return b, nil
}

func (f *network) Listen(ctx context.Context, in *fabric.Info) (fabric.Listener, error) {
	return f.Fabric.Listen(ctx, f.provider.below(in))
}

// A budget is a domain that counts what it may still register.
type budget struct {
	fabric.Domain
	mu   sync.Mutex
	left uint64
}

// An atomicBudget is a budget of a domain that has atomics.
type atomicBudget struct {
	*budget
	fabric.AtomicQuerier
}

// Reg registers a buffer, or answers ErrBusy if the budget does not reach.
func (d *budget) Reg(buf fabric.Buffer, access fabric.Access, key fabric.RegionKey) (fabric.MR, error) {
	if !d.take(buf.Len) {
		return nil, fmt.Errorf("register %d bytes: beyond the quota of this domain: %w", buf.Len, fabric.ErrBusy)
	}
	m, err := d.Domain.Reg(buf, access, key)
	if err != nil {
		d.give(buf.Len)
		return nil, err
	}
	return &region{MR: m, back: sync.OnceFunc(func() { d.give(buf.Len) })}, nil
}

func (d *budget) take(n uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n > d.left {
		return false
	}
	d.left -= n
	return true
}

func (d *budget) give(n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left += n
}

type region struct {
	fabric.MR
	back func()
}

func (m *region) Close() error {
	err := m.MR.Close()
	if err == nil {
		m.back()
	}
	return err
}
