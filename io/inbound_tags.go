// SPDX-License-Identifier: MIT

package io

import (
	"net"
	"sync"
)

// inboundTags remember the tags that peers sent with their transfers. An engine that is registered here has a table of its own; all others
// share one, so that memory is bounded by what the user has registered, whatever keys strangers think of. The zero value is ready.
type inboundTags struct {
	mu     sync.Mutex
	peers  map[string]*tagTable // by key of a registered engine
	others tagTable
}

// A tagTable keeps the last maxTags tags. The same transfer again changes its tag and not its age.
type tagTable struct {
	tags map[tagKey]string
	age  []tagKey // in order of arrival, a ring once full
	next int      // where the oldest is in a full ring
}

type tagKey struct {
	engine string
	uid    uint64
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

// add remembers what the engine named key has sent.
func (i *inboundTags) add(key string, registered bool, all []tagged) {
	i.mu.Lock()
	defer i.mu.Unlock()
	table := &i.others
	switch {
	case registered:
		if table = i.peers[key]; table == nil {
			if i.peers == nil {
				i.peers = map[string]*tagTable{}
			}
			table = &tagTable{}
			i.peers[key] = table
		}
	case len(key) > maxTagKey:
		return
	}
	for _, t := range all {
		table.add(tagKey{key, t.uid}, t.tag)
	}
}

func (i *inboundTags) find(key string, uid uint64) (string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	k := tagKey{key, uid}
	if t := i.peers[key]; t != nil {
		if tag, ok := t.tags[k]; ok {
			return tag, true
		}
	}
	tag, ok := i.others.tags[k]
	return tag, ok
}

// forget drops the table of an engine that is not registered any more.
func (i *inboundTags) forget(key string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.peers, key)
}

// InboundTag is the tag of the transfer uid of the engine named key, if it had one and that has arrived. Asking does not consume. The last
// 16384 tags of each engine that is registered here are remembered; all other engines share as many.
func (e *Engine) InboundTag(key string, uid uint64) (tag string, ok bool) {
	return e.tags.find(key, uid)
}

// takeTags remembers the tags of transfers of the engine named who.
func (s *controlServer) takeTags(c net.Conn, who string, body []byte) error {
	var q tagsSent
	if err := decodeControl(body, &q); err != nil {
		return err
	}
	all, err := unpackTags(q.Packed)
	if err != nil {
		return err
	}
	s.engine.tags.add(who, s.engine.store.peerOf(who) != nil, all)
	return writeControl(c, controlTagged, &tagsReply{Taken: len(all)})
}
