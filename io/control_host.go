// SPDX-License-Identifier: MIT

package io

import (
	"mori/io/internal/descriptor"
	"mori/io/internal/identity"
	"mori/io/internal/message"
)

// A controlHost implements control.Host for an engine.
type controlHost struct{ e *Engine }

func (h controlHost) Admits(who identity.ID) error { return h.e.peers.Admits(who) }

func (h controlHost) Knows(key string) bool { return h.e.peers.Get(key) != nil }

func (h controlHost) Offer() (endpoints []message.Endpoint, notify bool) {
	notify = h.e.backends.Notifies()
	for _, tr := range h.e.backends.Transports() {
		endpoints = append(endpoints, message.Endpoint{Name: tr.Name(), Addr: string(tr.Addr())})
	}
	return endpoints, notify
}

func (h controlHost) RegionSize(key descriptor.RegionKey) (size uint64, ok bool) {
	if r := h.e.regions.Granted(key); r != nil {
		return r.Desc().Size, true
	}
	return 0, false
}

func (h controlHost) Drop(token []byte) (found bool) {
	for _, tr := range h.e.backends.Transports() {
		for _, c := range tr.Conns() {
			if c.OpenedWith(token) {
				found = true
				c.Close()
			}
		}
	}
	return found
}

// TakeTags keeps the tags of transfers that access regions whose keys the engine who holds.
func (h controlHost) TakeTags(who identity.ID, all []message.Tag) int {
	granted := all[:0]
	for _, t := range all {
		if h.e.regions.Granted(t.Region) != nil {
			granted = append(granted, t)
		}
	}
	h.e.tags.Add(who, h.e.peers.IsRegistered(who), granted)
	return len(granted)
}
