// SPDX-License-Identifier: MIT

package io

import (
	"testing"
)

// restart makes an engine of the same key as old, which it replaces at b, and a session from it to b.
func restart(t *testing.T, old, b *side, kind BackendType) (*side, *Session) {
	t.Helper()
	again := newSide(t, old.key, len(old.mem), kind, nil)
	return again, meet(t, again, b)
}

// TestArrivalsOfAPredecessorAreNotItsSuccessors asks for the predecessor's uids, which the successor will use again.
func TestArrivalsOfAPredecessorAreNotItsSuccessors(t *testing.T) {
	for name, kind := range map[string]BackendType{"shm": BackendRDMA, "tcp": BackendTCP} {
		t.Run(name, func(t *testing.T) {
			a, b, s := pair(t, 64, kind, nil)
			succeed(t, writeTagged(s, "old", 8, 0))
			arrived(t, b.Engine, "a", 0)
			until(t, "the tag", func() bool { _, ok := b.InboundTag("a", 0); return ok })
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			_, s = restart(t, a, b, kind)
			if tag, ok := b.InboundTag("a", 0); ok || b.PopInbound("a", 0) {
				t.Errorf("the successor has sent nothing; arrived %v, tag %q", b.PopInbound("a", 0), tag)
			}
			succeed(t, writeTagged(s, "new", 8, 1))
			arrived(t, b.Engine, "a", 1)
			until(t, "the tag", func() bool { tag, _ := b.InboundTag("a", 1); return tag == "new" })
			if b.PopInbound("a", 0) {
				t.Error("the predecessor's transfer counts as the successor's")
			}
		})
	}
}

// TestDeregisteringForgetsArrivals: nothing is reported of an engine that is not registered, nor after it is registered again.
func TestDeregisteringForgetsArrivals(t *testing.T) {
	a, b, s := pair(t, 64, BackendRDMA, nil)
	succeed(t, writeTagged(s, "x", 8, 3))
	arrived(t, b.Engine, "a", 3)
	until(t, "the tag", func() bool { _, ok := b.InboundTag("a", 3); return ok })
	if err := b.DeregisterRemoteEngine(a.Desc()); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"deregistered", "registered again"} {
		if tag, ok := b.InboundTag("a", 3); ok || b.PopInbound("a", 3) {
			t.Errorf("%s: arrived %v, tag %q", when, b.PopInbound("a", 3), tag)
		}
		if err := b.RegisterRemoteEngine(a.Desc()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestArrivalsBeforeRegistrationCount: a target may be told of an engine after that has written.
func TestArrivalsBeforeRegistrationCount(t *testing.T) {
	a, b := newSide(t, "a", 64, BackendRDMA, nil), newSide(t, "b", 64, BackendRDMA, nil)
	if err := a.RegisterRemoteEngine(b.Desc()); err != nil {
		t.Fatal(err)
	}
	s, err := a.CreateSession(a.desc, b.desc)
	if err != nil {
		t.Fatal(err)
	}
	succeed(t, writeTagged(s, "early", 8, 5))
	if _, ok := b.InboundTag("a", 5); ok || b.PopInbound("a", 5) {
		t.Error("a transfer of an engine that is not registered is reported")
	}
	if err := b.RegisterRemoteEngine(a.Desc()); err != nil {
		t.Fatal(err)
	}
	arrived(t, b.Engine, "a", 5)
	until(t, "the tag", func() bool { tag, _ := b.InboundTag("a", 5); return tag == "early" })
}

// TestStrangersPushNoArrivalsOut: a registered engine's arrivals stay, however many identities others make up.
func TestStrangersPushNoArrivalsOut(t *testing.T) {
	peer := identity{"peer", 7}
	in := inbounds{registered: func(who identity) bool { return who == peer }}
	in.of(peer).add(1)
	for i := range uint64(maxInbounds + 100) {
		in.of(identity{"stranger", i + 1})
	}
	if len(in.all) != maxInbounds || !in.has(peer, 1) {
		t.Errorf("%d identities are remembered, the peer's arrival: %v", len(in.all), in.has(peer, 1))
	}
}
