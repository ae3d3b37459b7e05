// SPDX-License-Identifier: MIT

package io

import "testing"

// The control server of an engine answers from the engine's tables.
func TestAnEngineAnswersItsControlServer(t *testing.T) {
	a, b, s := pair(t, 64, BackendTCP, nil)
	h := controlHost{b.Engine}
	if !h.Knows("a") || h.Knows("stranger") {
		t.Errorf("knows a: %v, a stranger: %v", h.Knows("a"), h.Knows("stranger"))
	}
	other := a.self.ID()
	other.Incarnation++
	if err := h.Admits(a.self.ID()); err != nil {
		t.Errorf("a registered engine: %v", err)
	}
	if h.Admits(other) == nil {
		t.Error("another incarnation of a registered engine is admitted")
	}
	if endpoints, notify := h.Offer(); len(endpoints) == 0 || endpoints[0].Addr == "" || !notify {
		t.Errorf("it offers %v, notifications %v", endpoints, notify)
	}
	key := b.desc.Key()
	if size, ok := h.RegionSize(key); !ok || size != 64 {
		t.Errorf("a region with its key: %d bytes, %v", size, ok)
	}
	key.Secret[0] ^= 1
	if _, ok := h.RegionSize(key); ok {
		t.Error("a region with another key")
	}
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 1))
	token := s.plan.Load().path.Token()
	if h.Drop(make([]byte, len(token))) || !h.Drop(token) || h.Drop(token) {
		t.Error("a data connection is found by its token, and by no other, until it is dropped")
	}
}
