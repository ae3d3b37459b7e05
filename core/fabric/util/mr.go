// SPDX-License-Identifier: MIT

package util

import (
	"crypto/subtle"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
)

// closeGrace is how long MR.Close waits for accesses under way, before OnStuck and once more after
// it.
const closeGrace = 5 * time.Second

// An MRTable holds the registered regions of a domain.
type MRTable struct {
	mu     sync.RWMutex
	byID   map[uint64]*MR
	byDesc map[fabric.MRDesc]*MR // regions of device memory
	descs  fabric.MRDesc         // the last that was given
	device bool
	revoke []func(id uint64)
	stuck  []func(id uint64)
	ready  func(mr *MR) error // see OnPrefetch; nil: nothing

	grace time.Duration
}

// NewMRTable makes an empty table.
func NewMRTable() *MRTable {
	return &MRTable{byID: make(map[uint64]*MR), byDesc: make(map[fabric.MRDesc]*MR), grace: closeGrace}
}

// TakeDevice makes Register take device memory, too. It is called before the first Register.
func (t *MRTable) TakeDevice() { t.device = true }

// TakesDevice reports whether Register takes device memory.
func (t *MRTable) TakesDevice() bool { return t.device }

// OnRevoke adds a function that MR.Close calls once the region answers nobody any more and before
// it waits for accesses under way: here a provider calls its grants in. When it returns, no peer
// may use a grant. Hooks are added before the first Register.
func (t *MRTable) OnRevoke(fn func(id uint64)) { t.revoke = append(t.revoke, fn) }

// OnStuck adds a function that MR.Close calls when somebody holds the region for longer than the
// grace time: here a provider disconnects that peer. Hooks are added before the first Register.
func (t *MRTable) OnStuck(fn func(id uint64)) { t.stuck = append(t.stuck, fn) }

// OnPrefetch sets what MR.Prefetch does with a region, which stays open meanwhile. It is set before
// the first Register.
func (t *MRTable) OnPrefetch(fn func(mr *MR) error) { t.ready = fn }

// Register adds a region. ErrNoKey if the id is taken, also by one that is being closed;
// ErrNotSupported for device memory without TakeDevice.
func (t *MRTable) Register(buf fabric.Buffer, access fabric.Access, key fabric.RegionKey) (*MR, error) {
	switch {
	case buf.Kind != fabric.MemHost && !t.device:
		return nil, fmt.Errorf("register %d bytes of device memory as host memory: %w", buf.Len, fabric.ErrNotSupported)
	case buf.Addr+buf.Len < buf.Addr, buf.Addr == 0 && buf.Len > 0:
		return nil, fmt.Errorf("register %d bytes at %#x: %w", buf.Len, buf.Addr, fabric.ErrInvalid)
	}
	m := &MR{table: t, buf: buf, access: access, key: key, raw: key.Raw(buf.Len), idle: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, taken := t.byID[key.ID]; taken {
		return nil, fmt.Errorf("register %d bytes as region %d: id is taken: %w", buf.Len, key.ID, fabric.ErrNoKey)
	}
	t.byID[key.ID] = m
	if buf.Kind != fabric.MemHost {
		t.descs++
		m.desc = t.descs
		t.byDesc[m.desc] = m
	}
	return m, nil
}

// Device returns the region of device memory that a descriptor names, kept open until Release, or
// nil if it is not or no longer registered.
func (t *MRTable) Device(desc fabric.MRDesc) *MR {
	t.mu.RLock()
	m := t.byDesc[desc]
	t.mu.RUnlock()
	if m == nil || !m.enter() {
		return nil
	}
	return m
}

// Len is the number of regions, for a domain that must not close before them.
func (t *MRTable) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byID)
}

// Acquire checks a peer's claim to a region and keeps it open until Release. An unknown id and a
// wrong secret are both ErrNoKey, so that a peer cannot distinguish them. It is ErrAccess if the
// region does not grant all of want. The causes come bare.
func (t *MRTable) Acquire(key fabric.RegionKey, want fabric.Access) (*MR, error) {
	t.mu.RLock()
	m := t.byID[key.ID]
	t.mu.RUnlock()
	var secret [16]byte
	if m != nil {
		secret = m.key.Secret
	}
	same := subtle.ConstantTimeCompare(secret[:], key.Secret[:])
	if m == nil || same != 1 {
		return nil, fabric.ErrNoKey
	}
	if m.access&want != want {
		return nil, fabric.ErrAccess
	}
	if !m.enter() {
		return nil, fabric.ErrNoKey
	}
	return m, nil
}

// An MR is a registered region.
type MR struct {
	table  *MRTable
	buf    fabric.Buffer
	access fabric.Access
	key    fabric.RegionKey
	raw    []byte
	desc   fabric.MRDesc // of device memory, else 0

	users  atomic.Int64 // accesses under way, plus mrClosing
	closed sync.Once
	err    error
	once   sync.Once
	idle   chan struct{} // closed when closing and nobody is inside
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

// Release ends what Acquire began.
func (m *MR) Release() {
	if m.users.Add(-1) == mrClosing {
		m.once.Do(func() { close(m.idle) })
	}
}

// Range returns the address of n bytes at offset off of the region, or ErrRange, bare.
func (m *MR) Range(off, n uint64) (addr uint64, err error) {
	if off > m.buf.Len || n > m.buf.Len-off {
		return 0, fabric.ErrRange
	}
	return m.buf.Addr + off, nil
}

// Desc goes into Seg.MR of device memory. Host memory needs none: 0.
func (m *MR) Desc() fabric.MRDesc { return m.desc }

// Raw is the region's key in portable form; see fabric.MR.
func (m *MR) Raw() []byte { return m.raw }

// Key is the key that the region was registered with.
func (m *MR) Key() fabric.RegionKey { return m.key }

// Buffer is the memory of the region.
func (m *MR) Buffer() fabric.Buffer { return m.buf }

// Access are the rights that the region grants.
func (m *MR) Access() fabric.Access { return m.access }

// Prefetch has the provider do now what it does at the first op that needs the region; see
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

// Close revokes the region, calls grants in, and waits for accesses under way; see fabric.MR.
// ErrTimeout if somebody holds on even after OnStuck: then the memory must not be reused. The id is
// free again when Close returns nil.
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
			m.err = fmt.Errorf("close region %d: an access is still under way after %v: %w", m.key.ID, 2*m.table.grace, fabric.ErrTimeout)
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
