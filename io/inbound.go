// SPDX-License-Identifier: MIT

package io

import (
	"mori/io/internal/identity"
	"sync"
)

// An inbound remembers which transfers of one incarnation of a remote engine have arrived. Asking
// does not consume. Uids are mostly consecutive, so they are kept as 64-bit words of a bitmap; when
// there are more than maxInboundWords words, the oldest word is forgotten, so that a peer can't
// make us grow for ever.
type inbound struct {
	mu    sync.Mutex
	words map[uint64]uint64
	age   []uint64 // word numbers in order of first use, a ring once full
	next  int      // where the oldest is in a full ring
	links map[*link]struct{}
}

// maxInboundWords bounds the memory per remote engine to about 4 MiB; with consecutive uids that is
// the last 4 million transfers.
const maxInboundWords = 1 << 16

func (in *inbound) add(uid uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.words == nil {
		in.words = map[uint64]uint64{}
	}
	w := uid >> 6
	if _, ok := in.words[w]; !ok {
		in.remember(w)
	}
	in.words[w] |= 1 << (uid & 63)
}

// remember makes room for word w. It needs in.mu held.
func (in *inbound) remember(w uint64) {
	if len(in.age) < maxInboundWords {
		in.age = append(in.age, w)
		return
	}
	delete(in.words, in.age[in.next])
	in.age[in.next] = w
	in.next = (in.next + 1) % maxInboundWords
}

func (in *inbound) has(uid uint64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.words[uid>>6]&(1<<(uid&63)) != 0
}

// inbounds are the arrivals of all remote engines.
type inbounds struct {
	registered func(identity.ID) bool // nil: no engine is

	mu  sync.Mutex
	all map[identity.ID]*inbound
}

// maxInbounds bounds how many incarnations are remembered.
const maxInbounds = 1 << 14

// of returns the arrivals of who, which are empty if who is unknown. When there are too many, of
// forgets those of an engine that has no connection and is not registered here.
func (i *inbounds) of(who identity.ID) *inbound {
	i.mu.Lock()
	defer i.mu.Unlock()
	if in, ok := i.all[who]; ok {
		return in
	}
	if i.all == nil {
		i.all = map[identity.ID]*inbound{}
	}
	if len(i.all) >= maxInbounds {
		for other, in := range i.all {
			if len(in.allLinks()) == 0 && (i.registered == nil || !i.registered(other)) {
				delete(i.all, other)
				break
			}
		}
	}
	in := &inbound{links: map[*link]struct{}{}}
	i.all[who] = in
	return in
}

// forget drops the arrivals of all for whom gone is true.
func (i *inbounds) forget(gone func(identity.ID) bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for who := range i.all {
		if gone(who) {
			delete(i.all, who)
		}
	}
}

func (i *inbounds) watch(l *link) {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	l.in.links[l] = struct{}{}
}

// has tells whether a transfer arrived, looking at the queues if the table does not know it.
func (i *inbounds) has(who identity.ID, uid uint64) bool {
	i.mu.Lock()
	in := i.all[who]
	i.mu.Unlock()
	if in == nil {
		return false
	}
	if in.has(uid) {
		return true
	}
	for _, l := range in.allLinks() {
		l.drain()
	}
	return in.has(uid)
}

// drain books all arrivals, so that no queue stays full.
func (i *inbounds) drain() {
	i.mu.Lock()
	all := make([]*inbound, 0, len(i.all))
	for _, in := range i.all {
		all = append(all, in)
	}
	i.mu.Unlock()
	for _, in := range all {
		for _, l := range in.allLinks() {
			l.drain()
		}
	}
}

func (in *inbound) allLinks() []*link {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := make([]*link, 0, len(in.links))
	for l := range in.links {
		out = append(out, l)
	}
	return out
}

func (in *inbound) unwatch(l *link) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.links, l)
}
