// SPDX-License-Identifier: MIT

package io

import (
	"fmt"
	"slices"
	"sync"

	"mori/io/internal/identity"
)

// A store has the peers that were registered. Nothing here does any I/O.
type store struct {
	mu    sync.RWMutex
	peers map[string]*peer

	retired map[identity.ID]struct{} // were registered and are not any more
	age     []identity.ID            // of retired, a ring once full
	next    int                      // where the oldest is in a full ring
}

// maxRetired bounds how many former incarnations an engine remembers: 2 MiB with short keys.
const maxRetired = 1 << 14

func newStore() *store {
	return &store{peers: map[string]*peer{}, retired: map[identity.ID]struct{}{}}
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
