// SPDX-License-Identifier: MIT

package path

import (
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/io/internal/descriptor"
)

// regions holds a peer's regions that the domain of one path has imported. The zero value is ready.
type regions struct {
	mu    sync.Mutex
	byKey map[fabric.RegionKey]fabric.RemoteMR
}

// of imports a region into the domain of p, once. It fails if p is closed.
func (m *regions) of(p *Path, d *descriptor.Memory) (fabric.RemoteMR, error) {
	key := fabric.RegionKey{ID: uint64(d.ID), Secret: d.Secret}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := p.Err(); err != nil {
		return nil, err
	}
	if r := m.byKey[key]; r != nil {
		return r, nil
	}
	r, err := p.config.Transport.Domain.Import(key.Raw(d.Size))
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
func (m *regions) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.byKey {
		_ = r.Close()
	}
	m.byKey = nil
}
