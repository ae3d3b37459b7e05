// SPDX-License-Identifier: MIT

package util

import (
	"fmt"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
)

// An AV is a complete fabric.AV. Numbers start at 1. Insert reuses removed numbers, the most recent
// first.
type AV struct {
	bindings
	// table holds the address of number n at index n-1, nil if n is unused. Lookup reads it without
	// mu; growth replaces it. nil: closed.
	table atomic.Pointer[[]atomic.Pointer[fabric.Addr]]

	mu      sync.RWMutex
	numbers map[fabric.Addr]fabric.AVAddr
	free    []fabric.AVAddr
	used    int // numbers in the table, including free ones
	closed  bool
	check   func(fabric.Addr) error
}

var _ fabric.AV = (*AV)(nil)

// maxAV bounds the space that NewAV allocates in advance. A vector may grow larger.
const maxAV = 1 << 24

// NewAV makes a vector with initial space for size addresses.
func NewAV(size int) (*AV, error) {
	if size < 0 || size > maxAV {
		return nil, fmt.Errorf("open address vector for %d addresses, want 0 to %d: %w", size, maxAV, fabric.ErrInvalid)
	}
	v := &AV{bindings: bindings{object: "address vector"}, numbers: make(map[fabric.Addr]fabric.AVAddr, size)}
	table := make([]atomic.Pointer[fabric.Addr], size)
	v.table.Store(&table)
	return v, nil
}

// OnInsert sets a function that rejects invalid addresses; its error wraps ErrInvalid. Insert
// rejects the empty address itself. The vector's lock is held during the call. Call OnInsert before
// others use the vector.
func (v *AV) OnInsert(check func(fabric.Addr) error) { v.check = check }

// Insert adds addresses; see fabric.AV.
func (v *AV) Insert(addrs ...fabric.Addr) ([]fabric.AVAddr, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, fabric.ErrClosed
	}
	for i, a := range addrs {
		if a == "" {
			return nil, fmt.Errorf("insert address %d of %d, which is empty: %w", i+1, len(addrs), fabric.ErrInvalid)
		}
		if v.check == nil {
			continue
		}
		if err := v.check(a); err != nil {
			return nil, fmt.Errorf("insert address %d of %d: %w", i+1, len(addrs), err)
		}
	}
	numbers := make([]fabric.AVAddr, len(addrs))
	for i, a := range addrs {
		numbers[i] = v.insert(a)
	}
	return numbers, nil
}

func (v *AV) insert(a fabric.Addr) fabric.AVAddr {
	if n, ok := v.numbers[a]; ok {
		return n
	}
	n := v.number()
	v.numbers[a] = n
	(*v.table.Load())[n-1].Store(&a)
	return n
}

// number returns a free number.
func (v *AV) number() fabric.AVAddr {
	if last := len(v.free) - 1; last >= 0 {
		n := v.free[last]
		v.free = v.free[:last]
		return n
	}
	old := *v.table.Load()
	if v.used == len(old) {
		grown := make([]atomic.Pointer[fabric.Addr], max(8, 2*len(old)))
		for i := range old {
			grown[i].Store(old[i].Load())
		}
		v.table.Store(&grown)
	}
	v.used++
	return fabric.AVAddr(v.used)
}

// Remove removes a number; see fabric.AV.
func (v *AV) Remove(n fabric.AVAddr) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return fabric.ErrClosed
	}
	a, err := v.Lookup(n)
	if err != nil {
		return err
	}
	(*v.table.Load())[n-1].Store(nil)
	delete(v.numbers, a)
	v.free = append(v.free, n)
	return nil
}

// Lookup returns the address of a number; see fabric.AV.
func (v *AV) Lookup(n fabric.AVAddr) (fabric.Addr, error) {
	table := v.table.Load()
	if table == nil {
		return "", fabric.ErrClosed
	}
	if n != 0 && n <= fabric.AVAddr(len(*table)) {
		if a := (*table)[n-1].Load(); a != nil {
			return *a, nil
		}
	}
	return "", fmt.Errorf("address %d is not in the address vector: %w", n, fabric.ErrInvalid)
}

// Find returns the number of an address, or 0 if the vector does not have it.
func (v *AV) Find(a fabric.Addr) fabric.AVAddr {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.numbers[a]
}

// Close frees the vector, or returns ErrBusy while an endpoint is bound.
func (v *AV) Close() error {
	return v.close(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.closed = true
		v.numbers, v.free, v.used = nil, nil, 0
		v.table.Store(nil)
	})
}
