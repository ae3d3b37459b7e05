// SPDX-License-Identifier: MIT

package regions

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
)

// An MR is a registered region.
type MR struct {
	table  *Table
	buf    fabric.Buffer
	access fabric.Access
	key    fabric.RegionKey
	raw    []byte
	desc   fabric.MRDesc // of device memory, else 0

	users  atomic.Int64 // accesses in progress, plus mrClosing
	closed sync.Once
	err    error
	once   sync.Once
	idle   chan struct{} // closed when closing and no access is in progress
}

var (
	_ fabric.MR         = (*MR)(nil)
	_ fabric.Prefetcher = (*MR)(nil)
)

const mrClosing = 1 << 40

func (m *MR) enter() bool {
	if m.users.Add(1) < mrClosing {
		return true
	}
	m.Release()
	return false
}

// Release ends the access that Acquire began.
func (m *MR) Release() {
	if m.users.Add(-1) == mrClosing {
		m.once.Do(func() { close(m.idle) })
	}
}

// Range returns the address of n bytes at offset off of the region, or ErrRange, unwrapped.
func (m *MR) Range(off, n uint64) (addr uint64, err error) {
	if off > m.buf.Len || n > m.buf.Len-off {
		return 0, fabric.ErrRange
	}
	return m.buf.Addr + off, nil
}

// Desc returns the descriptor for Seg.MR of device memory. It is 0 for host memory, which needs
// none.
func (m *MR) Desc() fabric.MRDesc { return m.desc }

// Raw returns the region's key in portable form; see fabric.MR.
func (m *MR) Raw() []byte { return m.raw }

// Key returns the key that the region was registered with.
func (m *MR) Key() fabric.RegionKey { return m.key }

// Buffer returns the memory of the region.
func (m *MR) Buffer() fabric.Buffer { return m.buf }

// Access returns the rights that the region grants.
func (m *MR) Access() fabric.Access { return m.access }

// Prefetch makes the provider prepare the region now instead of at the first op that needs it; see
// fabric.Prefetcher.
func (m *MR) Prefetch() error {
	if m.table.ready == nil {
		return fmt.Errorf("prefetch region %d: %w", m.key.ID, fabric.ErrNotSupported)
	}
	if !m.enter() {
		return fmt.Errorf("prefetch region %d, which is closed: %w", m.key.ID, fabric.ErrNoKey)
	}
	defer m.Release()
	if err := m.table.ready(m); err != nil {
		return fmt.Errorf("prefetch region %d: %w", m.key.ID, err)
	}
	return nil
}

// Close revokes the region and its grants, and waits for accesses in progress; see fabric.MR. It
// returns ErrTimeout if an access has not ended even after OnStuck. The memory must not be reused
// then. The id is free again once Close has returned nil.
func (m *MR) Close() error {
	m.closed.Do(m.close)
	return m.err
}

func (m *MR) close() {
	if m.users.Add(mrClosing) == mrClosing {
		m.once.Do(func() { close(m.idle) })
	}
	for _, fn := range m.table.revoke {
		fn(m.key.ID)
	}
	if !m.awaitIdle() {
		for _, fn := range m.table.stuck {
			fn(m.key.ID)
		}
		if !m.awaitIdle() {
			m.err = fmt.Errorf("close region %d: an access is still pending after %v: %w", m.key.ID, 2*m.table.grace, fabric.ErrTimeout)
			return
		}
	}
	m.table.mu.Lock()
	delete(m.table.byID, m.key.ID)
	delete(m.table.byDesc, m.desc)
	m.table.mu.Unlock()
}

func (m *MR) awaitIdle() bool {
	select {
	case <-m.idle:
		return true
	default:
	}
	t := time.NewTimer(m.table.grace)
	defer t.Stop()
	select {
	case <-m.idle:
		return true
	case <-t.C:
		return false
	}
}
