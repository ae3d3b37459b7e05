// SPDX-License-Identifier: MIT

package pybind

import (
	"fmt"
	"sync"
)

// A table gives out ids for values. An id is an index and a generation, so a stale id finds
// nothing. 0 is never an id.
type table[T any] struct {
	what string

	mu   sync.RWMutex
	rows []tableRow[T]
	free []uint32
}

type tableRow[T any] struct {
	value T
	gen   uint32 // odd while in use
}

func (t *table[T]) add(v T) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		i = uint32(len(t.rows))
		t.rows = append(t.rows, tableRow[T]{})
	}
	r := &t.rows[i]
	r.gen++
	r.value = v
	return uint64(r.gen)<<32 | uint64(i)
}

func (t *table[T]) get(id uint64) (T, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if i := int(uint32(id)); i < len(t.rows) && t.rows[i].gen == uint32(id>>32) && t.rows[i].gen&1 == 1 {
		return t.rows[i].value, nil
	}
	var none T
	return none, coded("E_STATE", fmt.Errorf("%s handle %#x is closed or was never given out", t.what, id))
}

// remove takes id back; false if it was not in use.
func (t *table[T]) remove(id uint64) (T, bool) {
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

// clear takes all ids back and returns what they stood for.
func (t *table[T]) clear() (values []T) { return t.take(func(T) bool { return true }) }

// take is clear of those that which says.
func (t *table[T]) take(which func(T) bool) (values []T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.rows {
		if t.rows[i].gen&1 == 1 && which(t.rows[i].value) {
			values = append(values, t.rows[i].value)
			t.rows[i] = tableRow[T]{gen: t.rows[i].gen + 1}
			t.free = append(t.free, uint32(i))
		}
	}
	return values
}
