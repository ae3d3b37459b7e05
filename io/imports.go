// SPDX-License-Identifier: MIT

package io

import (
	"fmt"
	"sync"

	"mori/core/fabric"
)

// imports are the regions of a peer, as the domain of one path knows them. The zero value is ready.
type imports struct {
	mu    sync.Mutex
	byKey map[fabric.RegionKey]fabric.RemoteMR
}

// of makes a region known to the domain of p, once. It fails if p is closed.
func (m *imports) of(p *path, d *MemoryDesc) (fabric.RemoteMR, error) {
	key := fabric.RegionKey{ID: uint64(d.ID), Secret: d.Secret}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := p.err(); err != nil {
		return nil, err
	}
	if r := m.byKey[key]; r != nil {
		return r, nil
	}
	r, err := p.tr.Domain.Import(key.Raw(d.Size))
	if err != nil {
		return nil, fmt.Errorf("import region %d of %q: %w", d.ID, d.EngineKey, err)
	}
	if m.byKey == nil {
		m.byKey = map[fabric.RegionKey]fabric.RemoteMR{}
	}
	m.byKey[key] = r
	return r, nil
}

// close forgets all regions.
func (m *imports) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.byKey {
		_ = r.Close()
	}
	m.byKey = nil
}
