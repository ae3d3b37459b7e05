// SPDX-License-Identifier: MIT

package peer

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"mori/io/internal/errs"
	"mori/io/internal/identity"
	"mori/io/internal/meter"
)

// A Table has the peers of an engine by key. It does no I/O. Safe for concurrent use.
type Table struct {
	mu    sync.RWMutex
	peers map[string]*Peer

	retired retired
}

// NewTable returns a table without peers.
func NewTable() *Table { return &Table{peers: map[string]*Peer{}} }

// Registered returns the incarnation that is registered under key, if one is and it can prove its
// identity.
func (t *Table) Registered(key string) (who identity.ID, ok bool) {
	p := t.Get(key)
	if p == nil || p.Desc.Incarnation == 0 || p.Desc.PublicKey == (identity.PublicKey{}) {
		return identity.ID{}, false
	}
	return p.Desc.ID(), true
}

// IsRegistered reports whether who is the incarnation that is registered under its key.
func (t *Table) IsRegistered(who identity.ID) bool {
	here, ok := t.Registered(who.Key)
	return ok && here == who
}

// Get returns the peer with this key, nil if none is registered.
func (t *Table) Get(key string) *Peer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.peers[key]
}

// Put registers p. It returns the earlier peer with the same key, nil if none.
func (t *Table) Put(p *Peer) (old *Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old = t.peers[p.Desc.Key]
	t.peers[p.Desc.Key] = p
	if old != nil && p.Desc.Incarnation != 0 {
		t.retired.add(old.Desc.ID())
	}
	t.retired.remove(p.Desc.ID())
	return old
}

// PutFirst registers the peer that make returns, unless a peer with this key exists.
func (t *Table) PutFirst(key string, make func() *Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.peers[key] == nil {
		p := make()
		t.peers[key] = p
		t.retired.remove(p.Desc.ID())
	}
}

// Admits returns why who may not connect, nil if it may. An engine with an unregistered key may
// connect. Of a registered key, only the registered incarnation may.
func (t *Table) Admits(who identity.ID) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.retired.has(who) {
		return fmt.Errorf("this incarnation of engine %q was replaced or deregistered: %w", who.Key,
			errs.ErrNotFound)
	}
	p := t.peers[who.Key]
	switch {
	case p == nil || p.Desc.Incarnation == 0 || who.Is(p.Desc.ID()):
	case p.Desc.Incarnation == who.Incarnation:
		return fmt.Errorf("engine %q is registered here with another public key: %w", who.Key, errs.ErrNotFound)
	default:
		return fmt.Errorf("engine %q is registered here as another incarnation: register the new descriptor first: %w", who.Key, errs.ErrNotFound)
	}
	return nil
}

// Remove removes a peer from the table and returns it, nil if none is registered.
func (t *Table) Remove(key string) (old *Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old = t.peers[key]; old != nil {
		t.retired.add(old.Desc.ID())
	}
	delete(t.peers, key)
	return old
}

// All returns the peers, sorted by key.
func (t *Table) All() []*Peer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]*Peer, 0, len(t.peers))
	for _, p := range t.peers {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *Peer) int {
		if a.Desc.Key < b.Desc.Key {
			return -1
		}
		return 1
	})
	return out
}

// Open returns the records and the stages of transfers that have not ended: by peer, oldest first,
// at most n per peer.
func (t *Table) Open(now time.Time, n int) (all []meter.Record, stages []string) {
	for _, p := range t.All() {
		records, where := p.Pending.Open(now, n)
		all, stages = append(all, records...), append(stages, where...)
	}
	return all, stages
}
