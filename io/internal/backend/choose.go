// SPDX-License-Identifier: MIT

package backend

import (
	"fmt"

	"mori/core"
	"mori/io/internal/control"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
	"mori/io/internal/region"
)

// ErrNone means that no backend can serve a pair of regions.
var ErrNone = fmt.Errorf("no backend can serve this pair: %w", errs.ErrBadState)

// A Peer holds the properties of the remote engine that the choice of a backend depends on.
type Peer struct {
	Port     int
	SameNode bool
}

// Choose returns the route of a pair of regions. It is that of the first backend in preference that
// can serve the pair. skipped has the reason why each earlier backend cannot. p is nil if the
// remote engine is not registered. If no backend can serve the pair, the error wraps ErrNone.
func (t *Table) Choose(local *region.Region, remote *descriptor.Memory, p *Peer) (r *Route,
	skipped []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	here := t.config.Self.Key
	if len(t.byKind) == 0 {
		return nil, nil, fmt.Errorf("engine %q has no backend, create one first: %w", here, ErrNone)
	}
	if p == nil {
		return nil, nil, fmt.Errorf("engine %q is not registered as a peer, so no created backend reaches it; create a backend and register the engine first: %w",
			remote.EngineKey, ErrNone)
	}
	for _, kind := range preference {
		b := t.byKind[kind]
		if b == nil {
			continue
		}
		r := b.host
		if local.Desc().Loc == descriptor.LocGPU || remote.Loc == descriptor.LocGPU {
			r = b.gpu
		}
		why := ""
		switch {
		case kind == XGMI:
			why = beyondXGMI(local, remote, p)
		case p.Port == control.PortNone && remote.EngineKey != here:
			why = fmt.Sprintf("engine %q has port %d, which only XGMI reaches", remote.EngineKey,
				control.PortNone)
		}
		if why == "" {
			return r, skipped, nil
		}
		skipped = append(skipped, fmt.Sprintf("%v: %s", kind, why))
	}
	return nil, nil, fmt.Errorf("region %d of %q and region %d of %q: %v; create a backend that can, on both sides, first: %w",
		local.Desc().ID, here, remote.ID, remote.EngineKey, skipped, ErrNone)
}

// beyondXGMI returns why XGMI cannot serve a pair, "" if it can: both regions must be memory of
// GPUs on this host that reach each other.
func beyondXGMI(local *region.Region, remote *descriptor.Memory, p *Peer) string {
	switch {
	case local.Desc().Loc != descriptor.LocGPU || remote.Loc != descriptor.LocGPU:
		return "not both regions are GPU memory"
	case !p.SameNode:
		return core.OtherHost
	}
	return local.Unreached(remote)
}
