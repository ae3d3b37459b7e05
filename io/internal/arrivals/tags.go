// SPDX-License-Identifier: MIT

package arrivals

import (
	"sync"

	"mori/io/internal/identity"
	"mori/io/internal/message"
)

const (
	maxTags   = 16384 // of each registered engine, and of all others together
	maxTagKey = 256   // longest key of an engine that is not registered here
)

// Tags remembers the tags that peers sent with their transfers. Each registered incarnation has its
// own table. All others share one, so the number of registered engines bounds the memory. The zero
// value is ready.
type Tags struct {
	mu     sync.Mutex
	peers  map[identity.ID]*tagTable // of registered engines
	others tagTable
}

// A tagTable keeps the last maxTags tags. A new tag for the same transfer replaces the old one and
// keeps its age.
type tagTable struct {
	tags map[tagKey]string
	age  []tagKey // in order of arrival, a ring once full
	next int      // index of the oldest in a full ring
}

type tagKey struct {
	who identity.ID
	uid uint64
}

func (t *tagTable) add(k tagKey, tag string) {
	if t.tags == nil {
		t.tags = map[tagKey]string{}
	}
	if _, ok := t.tags[k]; !ok {
		if len(t.age) < maxTags {
			t.age = append(t.age, k)
		} else {
			delete(t.tags, t.age[t.next])
			t.age[t.next] = k
			t.next = (t.next + 1) % maxTags
		}
	}
	t.tags[k] = tag
}

// Add remembers the tags that who has sent. Unregistered engines share one table. Add ignores an
// unregistered engine whose key is longer than maxTagKey.
func (g *Tags) Add(who identity.ID, registered bool, all []message.Tag) {
	g.mu.Lock()
	defer g.mu.Unlock()
	table := &g.others
	switch {
	case registered:
		if table = g.peers[who]; table == nil {
			if g.peers == nil {
				g.peers = map[identity.ID]*tagTable{}
			}
			table = &tagTable{}
			g.peers[who] = table
		}
	case len(who.Key) > maxTagKey:
		return
	}
	for _, t := range all {
		table.add(tagKey{who, t.UID}, t.Text)
	}
}

// Find returns the tag of a transfer, if it had one and it has arrived.
func (g *Tags) Find(who identity.ID, uid uint64) (tag string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := tagKey{who, uid}
	if t := g.peers[who]; t != nil {
		if tag, ok := t.tags[k]; ok {
			return tag, true
		}
	}
	tag, ok = g.others.tags[k]
	return tag, ok
}

// Forget drops the tags of every ID for which gone is true.
func (g *Tags) Forget(gone func(identity.ID) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for who := range g.peers {
		if gone(who) {
			delete(g.peers, who)
		}
	}
	g.others.drop(gone)
}

// drop removes the tags of every ID for which gone is true.
func (t *tagTable) drop(gone func(identity.ID) bool) {
	if len(t.age) < maxTags {
		t.next = 0 // the ring is not full, so the oldest comes first
	}
	left := make([]tagKey, 0, len(t.age))
	for i := range t.age {
		k := t.age[(t.next+i)%len(t.age)]
		if gone(k.who) {
			delete(t.tags, k)
		} else {
			left = append(left, k)
		}
	}
	t.age, t.next = left, 0
}
