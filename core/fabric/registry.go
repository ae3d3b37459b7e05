// SPDX-License-Identifier: MIT

package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// A Registry holds the providers in order of preference, which is the order of registration. Safe
// for concurrent use.
type Registry struct {
	mu       sync.Mutex
	listed   []*registration
	leaving  []*registration // removed by Deregister, still in use
	filtered func(name string) bool
}

// A registration counts the references to a provider: calls in progress and open fabrics.
type registration struct {
	Provider
	name    string
	version Version
	refs    int           // under Registry.mu
	idle    chan struct{} // made by Deregister, closed when refs is 0
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{} }

// Register adds p after the other providers. ErrInvalid if p has no name. ErrNoSys if p was written
// for an incompatible API: another major version, or a newer minor one. Of two providers with the
// same name, the newer one stays, at the old one's position; ErrExist if p is not newer. Open
// fabrics of a replaced provider stay usable.
func (r *Registry) Register(p Provider) error {
	if p == nil || p.Name() == "" {
		return fmt.Errorf("register a provider without a name: %w", ErrInvalid)
	}
	version, api := p.Version()
	if api.Major != APIVersion.Major || api.Minor > APIVersion.Minor {
		return fmt.Errorf("register %s, written for API %d.%d, with API %d.%d: %w",
			p.Name(), api.Major, api.Minor, APIVersion.Major, APIVersion.Minor, ErrNoSys)
	}
	reg := &registration{Provider: p, name: strings.ToLower(p.Name()), version: version}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := indexName(r.listed, reg.name)
	if i < 0 {
		r.listed = append(r.listed, reg)
		return nil
	}
	if old := r.listed[i].version; !old.Less(version) {
		return fmt.Errorf("register %s %d.%d beside %d.%d: %w", reg.name, version.Major, version.Minor, old.Major, old.Minor, ErrExist)
	}
	r.listed[i] = reg
	return nil
}

// Deregister removes the provider of this name from the list immediately, then waits until it is
// unused or ctx is done. If ctx is done first, call it again to continue waiting. ErrNoData if the
// provider is not registered.
func (r *Registry) Deregister(ctx context.Context, name string) error {
	name = strings.ToLower(name)
	r.mu.Lock()
	var reg *registration
	if i := indexName(r.listed, name); i >= 0 {
		reg = r.listed[i]
		r.listed = slices.Delete(r.listed, i, i+1)
		reg.idle = make(chan struct{})
		r.leaving = append(r.leaving, reg)
		r.settle(reg)
	} else if i := indexName(r.leaving, name); i >= 0 {
		reg = r.leaving[i]
	}
	r.mu.Unlock()
	if reg == nil {
		return fmt.Errorf("deregister provider %q: %w", name, ErrNoData)
	}
	select {
	case <-reg.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("deregister provider %s, which is in use: %w", name, ctx.Err())
	}
}

// settle removes a leaving registration once it has no references. The caller holds mu.
func (r *Registry) settle(reg *registration) {
	if reg.refs == 0 && reg.idle != nil {
		r.leaving = slices.DeleteFunc(r.leaving, func(o *registration) bool { return o == reg })
		close(reg.idle)
	}
}

func indexName(regs []*registration, name string) int {
	return slices.IndexFunc(regs, func(reg *registration) bool { return reg.name == name })
}

// SetFilter restricts GetInfo to the providers in a list "a,b", or with a leading "^" to those not
// in it. An empty filter lifts the restriction. Case does not matter.
func (r *Registry) SetFilter(filter string) {
	list, negated := strings.CutPrefix(strings.ToLower(strings.TrimSpace(filter)), "^")
	names := strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.filtered = nil
	if len(names) > 0 {
		r.filtered = func(name string) bool { return slices.Contains(names, name) == negated }
	}
}

// Names returns the providers that pass the filter, in order of preference.
func (r *Registry) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, reg := range r.listed {
		if r.filtered == nil || !r.filtered(reg.name) {
			names = append(names, reg.name)
		}
	}
	return names
}

// GetInfo concatenates the providers' answers, in order of preference. It ignores the failure of a
// single provider. If none has an answer, it returns ErrNoData with every provider's reason.
func (r *Registry) GetInfo(ctx context.Context, node, service string, hints *Info) ([]*Info, error) {
	var infos []*Info
	var reasons []error
	for _, reg := range r.acquire(hints) {
		answers, err := reg.GetInfo(ctx, node, service, hints)
		for _, in := range answers {
			if in.Provider == "" {
				in.Provider = reg.name
			}
			if in.ProviderVersion == (Version{}) {
				in.ProviderVersion = reg.version
			}
			if _, misfit := Match(hints, in); misfit != nil {
				err = misfit
				continue
			}
			infos = append(infos, in)
		}
		if err != nil {
			reasons = append(reasons, fmt.Errorf("%s: %w", reg.name, err))
		}
		r.release(reg)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("get info: %w", err)
	}
	if len(infos) == 0 {
		return nil, noInfo(reasons)
	}
	return infos, nil
}

func noInfo(reasons []error) error {
	if len(reasons) == 0 {
		return fmt.Errorf("get info: no such provider: %w", ErrNoData)
	}
	return fmt.Errorf("get info: %w (%w)", ErrNoData, errors.Join(reasons...))
}

// acquire takes a reference on each provider that passes the filter and the hints.
func (r *Registry) acquire(hints *Info) []*registration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var regs []*registration
	for _, reg := range r.listed {
		named := hints == nil || hints.Provider == "" || strings.EqualFold(hints.Provider, reg.name)
		if named && (r.filtered == nil || !r.filtered(reg.name)) {
			reg.refs++
			regs = append(regs, reg)
		}
	}
	return regs
}

func (r *Registry) release(reg *registration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reg.refs--
	r.settle(reg)
}

// Open opens the fabric that in, a result of GetInfo, describes. The fabric keeps its provider in
// use until it is closed. ErrNoData if the provider is no longer registered.
func (r *Registry) Open(ctx context.Context, in *Info) (Fabric, error) {
	if in == nil {
		return nil, fmt.Errorf("open fabric without info: %w", ErrInvalid)
	}
	r.mu.Lock()
	i := indexName(r.listed, strings.ToLower(in.Provider))
	if i < 0 {
		r.mu.Unlock()
		return nil, fmt.Errorf("open fabric of provider %q: %w", in.Provider, ErrNoData)
	}
	reg := r.listed[i]
	reg.refs++
	r.mu.Unlock()
	f, err := reg.Open(ctx, in)
	if err != nil {
		r.release(reg)
		return nil, fmt.Errorf("open fabric %s of %s: %w", in.FabricName, reg.name, err)
	}
	return &heldFabric{Fabric: f, release: sync.OnceFunc(func() { r.release(reg) })}, nil
}

// A heldFabric is a fabric with a reference on its provider.
type heldFabric struct {
	Fabric
	release func()
}

func (f *heldFabric) Close() error {
	err := f.Fabric.Close()
	if err == nil {
		f.release()
	}
	return err
}
