// SPDX-License-Identifier: MIT

package io

import (
	"strings"
	"testing"
)

// TestNobodySpeaksForARegisteredEngine: neither a stranger nor a member can announce a registered engine's key, not even with its incarnation.
func TestNobodySpeaksForARegisteredEngine(t *testing.T) {
	for name, secret := range map[string]string{"stranger": "", "member": "open sesame"} {
		t.Run(name, func(t *testing.T) {
			a, _ := guarded(t, "a", secret)
			b, _ := guarded(t, "b", secret)
			s := meet(t, a, b)
			for what, incarnation := range map[string]uint64{"its incarnation": a.incarnation, "another incarnation": 77, "no incarnation": 0} {
				liar := newCaller(t, "a", incarnation, b)
				if kind, _, why := liar.greet(t, dialControl(t, b.Engine)); kind != controlError || !strings.Contains(why, "registered") {
					t.Errorf("another engine announces a's key with %s: %d %s", what, kind, why)
				}
				liar.hello.PublicKey = a.signer.public[:] // from a's descriptor, without the private half
				if kind, _, why := liar.greet(t, dialControl(t, b.Engine)); kind != controlError {
					t.Errorf("and with a's public key: %d %s", kind, why)
				}
			}
			liar := newCaller(t, "b", 77, b)
			if kind, _, _ := liar.greet(t, dialControl(t, b.Engine)); kind != controlError {
				t.Errorf("an engine's own key is announced to it: %d", kind)
			}
			succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 1))
			arrived(t, b.Engine, "a", 1)
		})
	}
}

// TestATagNeedsItsRegionsKey: a tag for a region whose key the sender does not have is not remembered.
func TestATagNeedsItsRegionsKey(t *testing.T) {
	a, b, s := pair(t, 64, BackendTCP, nil)
	wrong := b.desc.Secret
	wrong[3] ^= 1
	send := func(region regionKey, uid uint64) {
		if err := a.store.peerOf("b").ctl.tell(deadline(t), []tagged{{uid, "lie", region}}); err != nil {
			t.Fatal(err)
		}
	}
	send(regionKey{b.desc.ID, wrong}, 1)
	send(regionKey{b.desc.ID + 1, b.desc.Secret}, 2)
	send(regionKey{}, 3)
	for uid := range uint64(4) {
		if tag, ok := b.InboundTag("a", uid); ok {
			t.Errorf("transfer %d has tag %q", uid, tag)
		}
	}
	send(regionKey{b.desc.ID, b.desc.Secret}, 4)
	if _, ok := b.InboundTag("a", 4); !ok {
		t.Error("a tag with the right key is not remembered")
	}
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 9))
}

// TestClientsCompareTheDescriptor: an engine that is not the one of the registered descriptor is refused, whatever it says of itself.
func TestClientsCompareTheDescriptor(t *testing.T) {
	b, c := newSide(t, "b", 64, BackendTCP, nil), newSide(t, "c", 64, BackendTCP, nil)
	for name, change := range map[string]func(*EngineDesc){
		"another port":        func(d *EngineDesc) { d.Port = c.Desc().Port },
		"another incarnation": func(d *EngineDesc) { d.Incarnation++ },
		"another public key":  func(d *EngineDesc) { d.PublicKey = c.signer.public },
	} {
		a, d := newSide(t, "a", 64, BackendTCP, nil), b.Desc()
		change(&d)
		if err := a.RegisterRemoteEngine(d); err != nil {
			t.Fatal(err)
		}
		if s, err := a.CreateSession(a.desc, b.desc); s != nil || err == nil {
			t.Errorf("%s: session %v, %v", name, s, err)
		}
	}
}
