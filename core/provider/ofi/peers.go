// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"fmt"

	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// peers are the addresses that the libfabric endpoint of an EPRDM knows, with a lane for each.
// Guarded by endpoint.mu, except av.
type peers struct {
	av       *vector // constant once the endpoint is enabled
	format   uint32
	fiAV     lf.FID // 0: not open
	byAddr   map[fabric.Addr]*lane
	byNumber map[uint64]*lane // the same lanes by libfabric's number
}

func newPeers(format uint32) *peers {
	return &peers{format: format, byAddr: make(map[fabric.Addr]*lane), byNumber: make(map[uint64]*lane)}
}

// lane returns the lane of ops to dest.
func (p *peers) lane(dest fabric.AVAddr) (*lane, error) {
	addr, err := p.av.Lookup(dest)
	if err != nil {
		return nil, err
	}
	if l := p.byAddr[addr]; l != nil {
		return l, nil
	}
	return p.add(addr)
}

// add inserts addr into libfabric's address vector.
func (p *peers) add(addr fabric.Addr) (*lane, error) {
	b, err := addrBytes(p.format, addr)
	if err != nil {
		return nil, err
	}
	number, err := p.fiAV.Insert(b)
	if err != nil {
		return nil, fmt.Errorf("insert %s into libfabric's address vector: %w", addr, cause(err))
	}
	l := &lane{addr: addr}
	l.reset(number)
	p.byAddr[addr], p.byNumber[number] = l, l
	return l, nil
}

// insert adds the addresses that are new. If libfabric does not accept one, ops to it fail.
func (p *peers) insert(addrs []fabric.Addr) {
	if p.fiAV == 0 {
		return
	}
	for _, a := range addrs {
		if l := p.byAddr[a]; l != nil {
			l.gone = false
		} else {
			_, _ = p.add(a)
		}
	}
}

// idle undoes add for a peer that has no pending ops and is not in the address vector any more.
func (p *peers) idle(l *lane) {
	if !l.gone {
		return
	}
	if p.fiAV != 0 {
		_ = p.fiAV.Remove(l.peer)
	}
	delete(p.byAddr, l.addr)
	delete(p.byNumber, l.peer)
}

// source returns the number of the peer that sent c. It is 0 if libfabric does not report the
// sender or the address vector does not have it.
func (p *peers) source(c *lf.Completion) fabric.AVAddr {
	if l := p.byNumber[c.From]; l != nil && c.From != lf.NoPeer {
		return p.av.Find(l.addr)
	}
	return 0
}

// close closes the libfabric objects.
func (p *peers) close() {
	if p.fiAV != 0 {
		_ = p.fiAV.Close()
		p.fiAV = 0
	}
}

// clear removes every peer.
func (p *peers) clear() {
	clear(p.byAddr)
	clear(p.byNumber)
}
