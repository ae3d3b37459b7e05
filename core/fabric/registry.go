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

// A Registry knows the providers. The order of registration is the order of preference. Safe for
// concurrent use.
type Registry struct {
	mu       sync.Mutex
	listed   []*registration
	leaving  []*registration // unlisted by Deregister, still in use
	filtered func(name string) bool
}

// A registration counts who uses a provider: calls under way and open fabrics.
type registration struct {
	Provider
	name    string
	version Version
	refs    int           // under Registry.mu
	idle    chan struct{} // made by Deregister, closed when refs is 0
}

// NewRegistry makes a registry without providers.
func NewRegistry() *Registry { return &Registry{} }

// Register adds p behind the others. ErrInvalid without a name; ErrNoSys if p was written for an
// API that is not this one (another major, or a newer minor version). Of two with the same name the
// newer one stays, in its place in the order: ErrExist if p is not newer. Fabrics of a provider
// that is replaced live on.
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

// Deregister unlists the provider of this name at once, and then waits until nobody uses it or ctx
// is done; in that case it may be called again to wait on. ErrNoData if it is not registered.
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

// settle lets a leaving registration go when nobody uses it. With mu held.
func (r *Registry) settle(reg *registration) {
	if reg.refs == 0 && reg.idle != nil {
		r.leaving = slices.DeleteFunc(r.leaving, func(o *registration) bool { return o == reg })
		close(reg.idle)
	}
}

func indexName(regs []*registration, name string) int {
	return slices.IndexFunc(regs, func(reg *registration) bool { return reg.name == name })
}

// SetFilter restricts GetInfo to the providers in a list "a,b", or with a leading "^" to those that
// are not in it. Empty lifts that. Case does not matter.
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

// Names are the providers that the filter lets through, in order of preference.
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

// GetInfo concatenates what the providers answer, in order of preference. A provider that fails
// does not fail the call; ErrNoData, with every provider's reason, if none has an answer.
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

// acquire takes a reference on each provider that the filter and the hints let through.
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

// Open opens the fabric of an answer of GetInfo. Its provider is in use until that closes.
// ErrNoData if it is not registered any more.
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

// A heldFabric keeps its provider in use.
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
