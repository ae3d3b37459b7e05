// SPDX-License-Identifier: MIT

// Package handle assigns ids to Go values, which Python holds in place of pointers.
package handle

import (
	"errors"
	"fmt"
	"sync"
)

// ErrStale means that an id is not in use.
var ErrStale = errors.New("is closed or was never given out")

// A Table assigns ids to values. An id is an index and a generation, so a stale id finds nothing. 0
// is never an id.
type Table[T any] struct {
	What string // kind of value, for errors

	mu   sync.RWMutex
	rows []row[T]
	free []uint32
}

type row[T any] struct {
	value T
	gen   uint32 // odd while in use
}

// Add stores v and returns its id.
func (t *Table[T]) Add(v T) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		i = uint32(len(t.rows))
		t.rows = append(t.rows, row[T]{})
	}
	r := &t.rows[i]
	r.gen++
	r.value = v
	return uint64(r.gen)<<32 | uint64(i)
}

// Get returns the value of id, or an error that wraps ErrStale.
func (t *Table[T]) Get(id uint64) (T, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if i := int(uint32(id)); i < len(t.rows) && t.rows[i].gen == uint32(id>>32) && t.rows[i].gen&1 == 1 {
		return t.rows[i].value, nil
	}
	var none T
	return none, fmt.Errorf("%s handle %#x %w", t.What, id, ErrStale)
}

// Remove removes the value of id and returns it. It reports false if id was not in use.
func (t *Table[T]) Remove(id uint64) (T, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var none T
	i := int(uint32(id))
	if i >= len(t.rows) || t.rows[i].gen != uint32(id>>32) || t.rows[i].gen&1 == 0 {
		return none, false
	}
	v := t.rows[i].value
	t.rows[i].value = none
	t.rows[i].gen++
	t.free = append(t.free, uint32(i))
	return v, true
}

// Clear removes all values and returns them.
func (t *Table[T]) Clear() (values []T) { return t.Take(func(T) bool { return true }) }

// Take removes and returns the values for which which is true.
func (t *Table[T]) Take(which func(T) bool) (values []T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.rows {
		if t.rows[i].gen&1 == 1 && which(t.rows[i].value) {
			values = append(values, t.rows[i].value)
			t.rows[i] = row[T]{gen: t.rows[i].gen + 1}
			t.free = append(t.free, uint32(i))
		}
	}
	return values
}
