// SPDX-License-Identifier: MIT

package io

import (
	"mori/io/internal/identity"
	"mori/io/internal/message"
	"sync"
)

// inboundTags remember the tags that peers sent with their transfers. An incarnation that is
// registered here has a table of its own; all others share one, so that the number of registered
// engines bounds the memory. The zero value is ready.
type inboundTags struct {
	mu     sync.Mutex
	peers  map[identity.ID]*tagTable // of registered engines
	others tagTable
}

// A tagTable keeps the last maxTags tags. The same transfer again changes its tag and not its age.
type tagTable struct {
	tags map[tagKey]string
	age  []tagKey // in order of arrival, a ring once full
	next int      // where the oldest is in a full ring
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

// add remembers what who has sent.
func (i *inboundTags) add(who identity.ID, registered bool, all []message.Tag) {
	i.mu.Lock()
	defer i.mu.Unlock()
	table := &i.others
	switch {
	case registered:
		if table = i.peers[who]; table == nil {
			if i.peers == nil {
				i.peers = map[identity.ID]*tagTable{}
			}
			table = &tagTable{}
			i.peers[who] = table
		}
	case len(who.Key) > maxTagKey:
		return
	}
	for _, t := range all {
		table.add(tagKey{who, t.UID}, t.Text)
	}
}

func (i *inboundTags) find(who identity.ID, uid uint64) (string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	k := tagKey{who, uid}
	if t := i.peers[who]; t != nil {
		if tag, ok := t.tags[k]; ok {
			return tag, true
		}
	}
	tag, ok := i.others.tags[k]
	return tag, ok
}

// forget drops the tags of all for whom gone is true.
func (i *inboundTags) forget(gone func(identity.ID) bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for who := range i.peers {
		if gone(who) {
			delete(i.peers, who)
		}
	}
	i.others.drop(gone)
}

// drop removes the tags of all for whom gone is true.
func (t *tagTable) drop(gone func(identity.ID) bool) {
	if len(t.age) < maxTags {
		t.next = 0 // the ring is not full: the oldest is the first
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

// InboundTag returns the tag of the transfer uid of the incarnation that is registered under key,
// if the transfer had one and it has arrived. Asking does not consume. InboundTag remembers the
// last 16384 tags of each registered engine; all other engines share as many.
func (e *Engine) InboundTag(key string, uid uint64) (tag string, ok bool) {
	who, ok := e.store.registered(key)
	if !ok {
		return "", false
	}
	return e.tags.find(who, uid)
}
