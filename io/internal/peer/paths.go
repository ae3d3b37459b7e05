// SPDX-License-Identifier: MIT

package peer

import (
	"slices"
	"sync"

	"mori/io/internal/backend"
	"mori/io/internal/path"
)

// paths holds the paths to one peer.
type paths struct {
	mu      sync.Mutex
	closed  error // the reason; nil while paths may be added
	byRoute map[*backend.Route]*path.Path
	old     []*path.Path // superseded, with pending transfers

	unended sync.WaitGroup // paths that are not fully closed
}

func (s *paths) init() { s.byRoute = map[*backend.Route]*path.Path{} }

// refuse makes put reject further paths. The first reason is kept.
func (s *paths) refuse(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed == nil {
		s.closed = reason
	}
}

// present returns the open path for r, if one exists.
func (s *paths) present(r *backend.Route) (*path.Path, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return nil, s.closed
	}
	if q := s.byRoute[r]; q != nil && q.Err() == nil {
		return q, nil
	}
	return nil, nil
}

// put makes q the path of r, or returns the reason why it may not.
func (s *paths) put(r *backend.Route, q *path.Path) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed == nil {
		s.byRoute[r] = q
	}
	return s.closed
}

// supersede replaces worse by q. worse stays open until its transfers have ended. supersede reports
// false if worse is not the path of r any more.
func (s *paths) supersede(r *backend.Route, worse, q *path.Path) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil || s.byRoute[r] != worse {
		return false
	}
	s.byRoute[r] = q
	s.old = append(s.old, worse)
	return true
}

// remove removes the path of r and returns it, nil if none exists.
func (s *paths) remove(r *backend.Route) *path.Path {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byRoute[r]
	delete(s.byRoute, r)
	return q
}

func (s *paths) all() []*path.Path {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*path.Path, 0, len(s.byRoute)+len(s.old))
	for _, q := range s.byRoute {
		out = append(out, q)
	}
	return append(out, s.old...)
}

// open returns the current open paths, by route.
func (s *paths) open() map[*backend.Route]*path.Path {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[*backend.Route]*path.Path, len(s.byRoute))
	for r, q := range s.byRoute {
		if q.Err() == nil {
			out[r] = q
		}
	}
	return out
}

// retired removes the superseded paths whose transfers have ended, and returns the open ones.
func (s *paths) retired() []*path.Path {
	s.mu.Lock()
	defer s.mu.Unlock()
	var over []*path.Path
	s.old = slices.DeleteFunc(s.old, func(q *path.Path) bool {
		done := q.Err() != nil || q.Ledger().Len() == 0
		if done && q.Err() == nil {
			over = append(over, q)
		}
		return done
	})
	return over
}

// closeAll closes all paths concurrently.
func (s *paths) closeAll(reason error) {
	var wg sync.WaitGroup
	for _, q := range s.all() {
		wg.Add(1)
		go func() {
			defer wg.Done()
			q.Close(reason)
		}()
	}
	wg.Wait()
}
