// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"fmt"

	"mori/core/fabric"
)

// laneOf is the line of ops to dest. With mu held.
func (e *endpoint) laneOf(dest fabric.AVAddr) (*lane, error) {
	if e.av == nil {
		return &e.only, nil
	}
	addr, err := e.av.Lookup(dest)
	if err != nil {
		return nil, err
	}
	if l := e.lanes[addr]; l != nil {
		return l, nil
	}
	return e.newLane(addr)
}

// newLane makes addr known to libfabric.
func (e *endpoint) newLane(addr fabric.Addr) (*lane, error) {
	b, err := addrBytes(e.domain.offer.fi.AddrFormat, addr)
	if err != nil {
		return nil, err
	}
	peer, err := e.fiAV.Insert(b)
	if err != nil {
		return nil, fmt.Errorf("make %s known to libfabric: %w", addr, cause(err))
	}
	l := &lane{addr: addr}
	l.reset(peer)
	e.lanes[addr], e.peers[peer] = l, l
	return l, nil
}

// drop undoes newLane for a peer without pending ops.
func (e *endpoint) drop(l *lane) {
	_ = e.fiAV.Remove(l.peer)
	delete(e.lanes, l.addr)
	delete(e.peers, l.peer)
}

// insert makes addresses known to libfabric. One that it does not take is refused when an op names
// it.
func (e *endpoint) insert(addrs ...fabric.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fiAV == 0 {
		return
	}
	for _, a := range addrs {
		if l := e.lanes[a]; l != nil {
			l.gone = false
		} else {
			_, _ = e.newLane(a)
		}
	}
}

// part lets go of an address once its ops have ended.
func (e *endpoint) part(addr fabric.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.lanes[addr]; l != nil {
		l.gone = true
		e.next(l)
	}
}
