// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"fmt"

	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// peers are the addresses that the libfabric endpoint of an EPRDM knows, with a lane for each.
// Under endpoint.mu, but for av.
type peers struct {
	av       *vector // constant once the endpoint is enabled
	format   uint32
	fiAV     lf.FID // 0: not open
	byAddr   map[fabric.Addr]*lane
	byNumber map[uint64]*lane // the same by libfabric's number
}

func newPeers(format uint32) *peers {
	return &peers{format: format, byAddr: make(map[fabric.Addr]*lane), byNumber: make(map[uint64]*lane)}
}

// lane is the line of ops to dest.
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

// add makes addr known to libfabric.
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

// insert adds the addresses that are not known. One that libfabric does not take is refused when an
// op names it.
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

// idle undoes add for a peer without pending ops that the address vector does not hold any more.
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

// source is the number of the peer that sent c. It is 0 if libfabric does not report the sender or
// the address vector does not hold it.
func (p *peers) source(c *lf.Completion) fabric.AVAddr {
	if l := p.byNumber[c.From]; l != nil && c.From != lf.NoPeer {
		return p.av.Find(l.addr)
	}
	return 0
}

// close closes what libfabric has.
func (p *peers) close() {
	if p.fiAV != 0 {
		_ = p.fiAV.Close()
		p.fiAV = 0
	}
}

// clear forgets every peer.
func (p *peers) clear() {
	clear(p.byAddr)
	clear(p.byNumber)
}
