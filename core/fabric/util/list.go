// SPDX-License-Identifier: MIT

package util

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A list holds elements that readers iterate over without a lock. A change replaces the slice that
// all returns, and never modifies it.
type list[T comparable] struct {
	mu    sync.Mutex // held by changes
	items atomic.Pointer[[]T]
}

func (l *list[T]) all() []T {
	if p := l.items.Load(); p != nil {
		return *p
	}
	return nil
}

func (l *list[T]) add(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	items := append(slices.Clone(l.all()), v)
	l.items.Store(&items)
}

func (l *list[T]) remove(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	items := slices.DeleteFunc(slices.Clone(l.all()), func(o T) bool { return o == v })
	l.items.Store(&items)
}

// same reports whether two results of all are the same list.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
