// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"maps"
	"slices"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// A vector is a fabric.AV that notifies its bound endpoints of inserted and removed addresses.
// libfabric reports the sender of a message only if it has been given the address.
type vector struct {
	*util.AV

	mu    sync.Mutex
	users map[*datagram]bool
	known map[fabric.Addr]bool
}

var _ fabric.AV = (*vector)(nil)

func (v *vector) Insert(addrs ...fabric.Addr) ([]fabric.AVAddr, error) {
	numbers, err := v.AV.Insert(addrs...)
	if err == nil {
		v.mu.Lock()
		for _, a := range addrs {
			v.known[a] = true
		}
		v.mu.Unlock()
		v.each(func(e *datagram) { e.insert(addrs...) })
	}
	return numbers, err
}

func (v *vector) Remove(n fabric.AVAddr) error {
	addr, _ := v.Lookup(n)
	err := v.AV.Remove(n)
	if err == nil {
		v.mu.Lock()
		delete(v.known, addr)
		v.mu.Unlock()
		v.each(func(e *datagram) { e.part(addr) })
	}
	return err
}

func (v *vector) each(fn func(*datagram)) {
	v.mu.Lock()
	users := slices.Collect(maps.Keys(v.users))
	v.mu.Unlock()
	for _, e := range users {
		fn(e)
	}
}

// join adds e to the notified endpoints, and first inserts the current addresses.
func (v *vector) join(e *datagram) {
	v.mu.Lock()
	v.users[e] = true
	known := slices.Collect(maps.Keys(v.known))
	v.mu.Unlock()
	e.insert(known...)
}

func (v *vector) leave(e *datagram) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.users, e)
}
