// SPDX-License-Identifier: MIT

package regions

import (
	"crypto/subtle"
	"fmt"
	"sync"
	"time"

	"mori/core/fabric"
)

// closeGrace is how long MR.Close waits for accesses in progress, once before OnStuck and once
// after it.
const closeGrace = 5 * time.Second

// A Table holds the registered regions of a domain.
type Table struct {
	mu     sync.RWMutex
	byID   map[uint64]*MR
	byDesc map[fabric.MRDesc]*MR // regions of device memory
	descs  fabric.MRDesc         // the last one given out
	device bool
	revoke []func(id uint64)
	stuck  []func(id uint64)
	ready  func(mr *MR) error // see OnPrefetch; nil: no function

	grace time.Duration
}

// NewTable makes an empty table.
func NewTable() *Table {
	return &Table{byID: make(map[uint64]*MR), byDesc: make(map[fabric.MRDesc]*MR), grace: closeGrace}
}

// TakeDevice makes Register accept device memory, too. Call it before the first Register.
func (t *Table) TakeDevice() { t.device = true }

// TakesDevice reports whether Register accepts device memory.
func (t *Table) TakesDevice() bool { return t.device }

// OnRevoke adds a function that MR.Close calls after the region has stopped accepting accesses and
// before it waits for those in progress. A provider revokes its grants here: when the function
// returns, no peer may use one. Call OnRevoke before the first Register.
func (t *Table) OnRevoke(fn func(id uint64)) { t.revoke = append(t.revoke, fn) }

// OnStuck adds a function that MR.Close calls when an access lasts longer than the grace period. A
// provider disconnects the peer here. Call OnStuck before the first Register.
func (t *Table) OnStuck(fn func(id uint64)) { t.stuck = append(t.stuck, fn) }

// OnPrefetch sets the function that MR.Prefetch calls with a region, which stays open meanwhile.
// Call OnPrefetch before the first Register.
func (t *Table) OnPrefetch(fn func(mr *MR) error) { t.ready = fn }

// Register adds a region. ErrNoKey if the id is in use, also by a region that is being closed;
// ErrNotSupported for device memory without TakeDevice.
func (t *Table) Register(buf fabric.Buffer, access fabric.Access, key fabric.RegionKey) (*MR, error) {
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

// Device returns the region of device memory that a descriptor names, or nil if the descriptor is
// not valid (any more). The region stays open until Release.
func (t *Table) Device(desc fabric.MRDesc) *MR {
	t.mu.RLock()
	m := t.byDesc[desc]
	t.mu.RUnlock()
	if m == nil || !m.enter() {
		return nil
	}
	return m
}

// Host returns a region of host memory that contains all n bytes at addr, or nil if there is none.
// The region stays open until Release. It is for providers whose devices access local memory that
// has no descriptor.
func (t *Table) Host(addr, n uint64) *MR {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, m := range t.byID {
		b := &m.buf
		if b.Kind == fabric.MemHost && addr >= b.Addr && addr-b.Addr <= b.Len && n <= b.Len-(addr-b.Addr) && m.enter() {
			return m
		}
	}
	return nil
}

// Len returns the number of regions. A domain must not close before its regions.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byID)
}

// Acquire checks a peer's key and keeps the region open until Release. It returns ErrNoKey for both
// an unknown id and a wrong secret, so that a peer cannot distinguish them. It returns ErrAccess if
// the region does not grant all of want. The errors are unwrapped.
func (t *Table) Acquire(key fabric.RegionKey, want fabric.Access) (*MR, error) {
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
