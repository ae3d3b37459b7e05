// SPDX-License-Identifier: MIT

package io

import (
	"strings"
	"testing"

	"mori/io/internal/message"
)

// restart returns a new engine with the key of old, which it replaces at b, and a session from it
// to b.
func restart(t *testing.T, old, b *side, kind BackendType) (*side, *Session) {
	t.Helper()
	again := newSide(t, old.self.Key, len(old.mem), kind, nil)
	return again, meet(t, again, b)
}

// TestArrivalsOfAPredecessorAreNotItsSuccessors queries the predecessor's uids, which the successor
// will reuse.
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

// TestDeregisteringForgetsArrivals checks that no arrival is reported for an engine that is not
// registered, nor after it is registered again.
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

// TestArrivalsBeforeRegistrationCount checks that arrivals before an engine's registration are
// reported.
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

// TestOnlyARegistrationReplaces checks that a Hello in the name of a registered engine is refused
// and does not affect that engine.
func TestOnlyARegistrationReplaces(t *testing.T) {
	a, b, s := pair(t, 64, BackendTCP, nil)
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 0))
	again := newSide(t, "a", 64, BackendTCP, nil)
	if err := again.RegisterRemoteEngine(b.Desc()); err != nil {
		t.Fatal(err)
	}
	if s, err := again.CreateSession(again.desc, b.desc); s != nil || err == nil || !strings.Contains(err.Error(), "register the new descriptor") {
		t.Errorf("an engine of the same key before it is registered: %v, %v", s, err)
	}
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 1))
	arrived(t, b.Engine, "a", 1)
	if n := a.Describe().Counters.Replays; n != 0 {
		t.Errorf("the registered engine had %d replays", n)
	}
	succeed(t, meet(t, again, b).Write([]uint64{0}, []uint64{0}, []uint64{8}, 2))
	if st := s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 3); st.Wait(deadline(t)) == CodeSuccess {
		t.Error("the former incarnation writes")
	}
}

// TestADeregisteredPeerIsRefused checks that a deregistered peer is refused until it is registered
// again.
func TestADeregisteredPeerIsRefused(t *testing.T) {
	a, b, s := pair(t, 64, BackendTCP, nil)
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 0))
	if err := b.DeregisterRemoteEngine(a.Desc()); err != nil {
		t.Fatal(err)
	}
	for _, tr := range b.backends.Transports() {
		if n := len(tr.Conns()); n != 0 {
			t.Errorf("%d connections of the deregistered peer over %s", n, tr.Name())
		}
	}
	if st := s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 1); st.Wait(deadline(t)) == CodeSuccess || !strings.Contains(st.Message(), "deregistered") {
		t.Errorf("%v %s", st.Code(), st.Message())
	}
	if err := b.RegisterRemoteEngine(a.Desc()); err != nil {
		t.Fatal(err)
	}
	again, err := a.CreateSession(a.desc, b.desc)
	if err != nil {
		t.Fatal(err)
	}
	succeed(t, again.Write([]uint64{0}, []uint64{0}, []uint64{8}, 2))
	arrived(t, b.Engine, "a", 2)
}

// TestATokenEndsWithItsIncarnation checks that a token issued to a predecessor opens no connection
// after the predecessor was replaced.
func TestATokenEndsWithItsIncarnation(t *testing.T) {
	a, b, _ := pair(t, 64, BackendTCP, nil)
	former := newCaller(t, "a", a.self.Incarnation, b)
	former.Signer, former.Hello.PublicKey = a.self.Signer, a.self.Signer.Public[:]
	w := former.Welcomed(t, dialControl(t, b.Engine))
	_, _ = restart(t, a, b, BackendTCP)
	if _, ok := b.backends.Control().Redeem(former.Ticket(w.Token, "tcp"), "tcp"); ok {
		t.Error("a token of the predecessor admits")
	}
	if kind, _, _ := former.Greet(t, dialControl(t, b.Engine)); kind != message.TypeFailure {
		t.Errorf("the predecessor's hello is answered with type %d", kind)
	}
}
