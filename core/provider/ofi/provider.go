// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"context"
	"fmt"
	"sync"

	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// Options select what a Provider offers.
type Options struct {
	// Provider is libfabric's name of the provider: "tcp", "tcp;ofi_rxm", "shm". Empty: all providers.
	Provider string

	// Source is our own address without a port, such as "127.0.0.1", which selects the interface.
	// Empty: libfabric chooses.
	Source string
}

// A Provider offers what libfabric offers.
type Provider struct {
	opts Options

	mu       sync.Mutex
	measured map[string]measured
	granted  map[query]uint64
}

var _ fabric.Provider = (*Provider)(nil)

// New makes a provider. The first call that needs the library loads it.
func New(opts Options) *Provider {
	return &Provider{opts: opts, measured: make(map[string]measured), granted: make(map[query]uint64)}
}

// Name returns "ofi".
func (p *Provider) Name() string { return "ofi" }

// Version returns the library's version, or 1.17 before it is loaded.
func (p *Provider) Version() (provider, api fabric.Version) {
	provider = fabric.Version{Major: 1, Minor: 17}
	if lf.Load() == nil {
		provider.Major, provider.Minor = lf.Version()
	}
	return provider, fabric.Version{Major: 1}
}

// load returns nil if the library is loaded, or an error that wraps ErrNotSupported, with the
// loader's message.
func load() error {
	if err := lf.Load(); err != nil {
		return fmt.Errorf("%w: %w", err, fabric.ErrNotSupported)
	}
	return nil
}

// GetInfo lists libfabric's offers; see fabric.Provider.
func (p *Provider) GetInfo(_ context.Context, node, service string, hints *fabric.Info) ([]*fabric.Info, error) {
	if err := load(); err != nil {
		return nil, fmt.Errorf("get info: %w", err)
	}
	var infos []*fabric.Info
	last := error(fabric.ErrNoData)
	for _, q := range queries(hints, node, service) {
		offers, list, err := p.ask(q)
		if err != nil {
			last = err
			continue
		}
		for i := range offers {
			offers[i].info.Limits = p.limits(&offers[i])
			in, err := fabric.Match(hints, &offers[i].info)
			if err != nil {
				last = err
				continue
			}
			infos = append(infos, in)
		}
		list.Free()
	}
	if len(infos) == 0 {
		return nil, fmt.Errorf("get info of %q: %w (%w)", p.opts.Provider, fabric.ErrNoData, last)
	}
	return infos, nil
}

// Open opens a fabric of libfabric, an event queue, and the goroutine that polls; see
// fabric.Provider.
func (p *Provider) Open(_ context.Context, in *fabric.Info) (fabric.Fabric, error) {
	if in == nil || in.Provider != "" && in.Provider != p.Name() {
		return nil, fmt.Errorf("open ofi with info of another provider: %w", fabric.ErrInvalid)
	}
	if err := load(); err != nil {
		return nil, err
	}
	o, list, err := p.find(in)
	if err != nil {
		return nil, err
	}
	defer list.Free()
	f := &network{provider: p, info: in.Clone()}
	if f.fid, err = lf.OpenFabric(o.id); err != nil {
		return nil, fmt.Errorf("open fabric %q: %w", in.FabricName, cause(err))
	}
	if f.engine, err = newEngine(f.fid); err != nil {
		_ = f.fid.Close()
		return nil, err
	}
	return f, nil
}
