// SPDX-License-Identifier: MIT

package io

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"sync"

	"mori/io/internal/descriptor"
	"mori/io/internal/identity"
)

// A store is an engine's metadata: its own regions and the peers that were registered. Nothing here
// does any I/O.
type store struct {
	mu      sync.RWMutex
	regions map[uint32]*region
	nextID  uint32
	peers   map[string]*peer

	retired map[identity.ID]struct{} // were registered and are not any more
	age     []identity.ID            // of retired, a ring once full
	next    int                      // where the oldest is in a full ring
}

// maxRetired bounds how many former incarnations an engine remembers: 2 MiB with short keys.
const maxRetired = 1 << 14

func newStore() *store {
	return &store{regions: map[uint32]*region{}, peers: map[string]*peer{},
		retired: map[identity.ID]struct{}{}}
}

// addRegion gives r its id, which is never reused.
func (s *store) addRegion(r *region) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.desc.ID = s.nextID
	s.nextID++
	s.regions[r.desc.ID] = r
}

func (s *store) removeRegion(id uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.regions[id]
	delete(s.regions, id)
	return ok
}

func (s *store) region(id uint32) *region {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.regions[id]
}

// grants reports whether there is a region with this key.
func (s *store) grants(k descriptor.RegionKey) bool {
	r := s.region(k.ID)
	return r != nil && subtle.ConstantTimeCompare(k.Secret[:], r.desc.Secret[:]) == 1
}

// regionOf finds the region of the engine named key that d describes, by id and not by identity of
// the descriptor; nil for one that is foreign, gone or not the same memory.
func (s *store) regionOf(d MemoryDesc, key string) *region {
	if d.EngineKey != key {
		return nil
	}
	r := s.region(d.ID)
	if r == nil || r.desc.Data != d.Data || r.desc.Size != d.Size ||
		d.Incarnation != 0 && d.Incarnation != r.desc.Incarnation {
		return nil
	}
	return r
}

func (s *store) allRegions() []*region {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*region, 0, len(s.regions))
	for _, r := range s.regions {
		out = append(out, r)
	}
	return out
}

// revokeAll takes all regions back at once, since each may have to wait for the same peer that does
// not answer.
func (s *store) revokeAll() error {
	regions := s.allRegions()
	errs := make([]error, len(regions))
	var wg sync.WaitGroup
	for i, r := range regions {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = r.revoke()
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// registered returns the incarnation that is registered under key, if there is one that can prove
// itself.
func (s *store) registered(key string) (who identity.ID, ok bool) {
	p := s.peerOf(key)
	if p == nil || p.desc.Incarnation == 0 || p.desc.PublicKey == (identity.PublicKey{}) {
		return identity.ID{}, false
	}
	return p.desc.ID(), true
}

// isRegistered reports whether who is the incarnation that is registered under its key.
func (s *store) isRegistered(who identity.ID) bool {
	here, ok := s.registered(who.Key)
	return ok && here == who
}

func (s *store) peerOf(key string) *peer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.peers[key]
}

// setPeer puts p in place of an earlier peer of the same key, which is returned.
func (s *store) setPeer(p *peer) (old *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old = s.peers[p.desc.Key]
	s.peers[p.desc.Key] = p
	if old != nil && p.desc.Incarnation != 0 {
		s.retire(old.desc.ID())
	}
	delete(s.retired, p.desc.ID())
	return old
}

// retire remembers an incarnation that is not to come back unless it is registered again. It needs
// s.mu held.
func (s *store) retire(who identity.ID) {
	if _, known := s.retired[who]; known || who.Incarnation == 0 {
		return
	}
	if len(s.age) < maxRetired {
		s.age = append(s.age, who)
	} else {
		delete(s.retired, s.age[s.next])
		s.age[s.next] = who
		s.next = (s.next + 1) % maxRetired
	}
	s.retired[who] = struct{}{}
}

// admits returns why who may not connect, nil if it may: an engine that is not registered may, and
// of one that is registered only the registered incarnation.
func (s *store) admits(who identity.ID) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if _, former := s.retired[who]; former {
		return fmt.Errorf("this incarnation of engine %q was replaced or deregistered: %w", who.Key,
			ErrNotFound)
	}
	p := s.peers[who.Key]
	switch {
	case p == nil || p.desc.Incarnation == 0 || who.Is(p.desc.ID()):
	case p.desc.Incarnation == who.Incarnation:
		return fmt.Errorf("engine %q is registered here with another public key: %w", who.Key, ErrNotFound)
	default:
		return fmt.Errorf("engine %q is registered here as another incarnation: register the new descriptor first: %w", who.Key, ErrNotFound)
	}
	return nil
}

func (s *store) removePeer(key string) (old *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old = s.peers[key]; old != nil {
		s.retire(old.desc.ID())
	}
	delete(s.peers, key)
	return old
}

// allPeers lists the peers by key.
func (s *store) allPeers() []*peer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*peer, 0, len(s.peers))
	for _, p := range s.peers {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *peer) int {
		if a.desc.Key < b.desc.Key {
			return -1
		}
		return 1
	})
	return out
}
