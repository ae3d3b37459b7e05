// SPDX-License-Identifier: MIT

package io

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"mori/io/internal/control"
	"mori/io/internal/control/controltest"
	"mori/io/internal/descriptor"
	"mori/io/internal/identity"
	"mori/io/internal/message"
)

// newCaller returns a caller that claims to be an engine, with a key pair of its own.
func newCaller(t *testing.T, key string, incarnation uint64, to *side) *controltest.Caller {
	t.Helper()
	return controltest.NewCaller(t, key, incarnation, to.self.Key, to.self.Secret)
}

// dialControl connects to the control plane of e.
func dialControl(t *testing.T, e *Engine) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(e.Desc().Port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// TestNobodySpeaksForARegisteredEngine checks that neither an unregistered nor a registered engine
// can use another registered engine's key, even with its incarnation.
func TestNobodySpeaksForARegisteredEngine(t *testing.T) {
	for name, secret := range map[string]string{"stranger": "", "member": "open sesame"} {
		t.Run(name, func(t *testing.T) {
			a, _ := guarded(t, "a", secret)
			b, _ := guarded(t, "b", secret)
			s := meet(t, a, b)
			for what, incarnation := range map[string]uint64{"its incarnation": a.self.Incarnation, "another incarnation": 77, "no incarnation": 0} {
				liar := newCaller(t, "a", incarnation, b)
				if kind, _, why := liar.Greet(t, dialControl(t, b.Engine)); kind != message.TypeFailure || !strings.Contains(why, "registered") {
					t.Errorf("another engine announces a's key with %s: %d %s", what, kind, why)
				}
				liar.Hello.PublicKey = a.self.Signer.Public[:] // from a's descriptor, without the private half
				if kind, _, why := liar.Greet(t, dialControl(t, b.Engine)); kind != message.TypeFailure {
					t.Errorf("and with a's public key: %d %s", kind, why)
				}
			}
			liar := newCaller(t, "b", 77, b)
			if kind, _, _ := liar.Greet(t, dialControl(t, b.Engine)); kind != message.TypeFailure {
				t.Errorf("an engine's own key is announced to it: %d", kind)
			}
			succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 1))
			arrived(t, b.Engine, "a", 1)
		})
	}
}

// TestATagNeedsItsRegionsKey checks that an engine ignores a tag for a region whose key the sender
// does not have.
func TestATagNeedsItsRegionsKey(t *testing.T) {
	a, b, s := pair(t, 64, BackendTCP, nil)
	wrong := b.desc.Secret
	wrong[3] ^= 1
	client := control.NewClient(&a.self, b.Desc(), control.Near{})
	t.Cleanup(client.Close)
	send := func(region descriptor.RegionKey, uid uint64) {
		if err := client.SendTags(deadline(t), []message.Tag{{UID: uid, Text: "lie", Region: region}}); err != nil {
			t.Fatal(err)
		}
	}
	send(descriptor.RegionKey{ID: b.desc.ID, Secret: wrong}, 1)
	send(descriptor.RegionKey{ID: b.desc.ID + 1, Secret: b.desc.Secret}, 2)
	send(descriptor.RegionKey{}, 3)
	for uid := range uint64(4) {
		if tag, ok := b.InboundTag("a", uid); ok {
			t.Errorf("transfer %d has tag %q", uid, tag)
		}
	}
	send(b.desc.Key(), 4)
	if _, ok := b.InboundTag("a", 4); !ok {
		t.Error("a tag with the right key is not remembered")
	}
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, 9))
}

// TestClientsCompareTheDescriptor alters a descriptor in transit in each way that a row of
// docs/security.md lists, and compares the result with that row.
func TestClientsCompareTheDescriptor(t *testing.T) {
	doc, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	b, evil := newSide(t, "b", 64, BackendTCP, nil), newSide(t, "b", 64, BackendTCP, nil)
	for _, c := range []struct {
		row     string
		change  func(*EngineDesc, *MemoryDesc)
		refused bool
	}{
		{"| host or port | the connection is refused", func(d *EngineDesc, _ *MemoryDesc) { d.Port = evil.Desc().Port }, true},
		{"| incarnation or public key alone | the connection is refused", func(d *EngineDesc, _ *MemoryDesc) { d.Incarnation++ }, true},
		{"| incarnation or public key alone | the connection is refused", func(d *EngineDesc, _ *MemoryDesc) { d.PublicKey = evil.self.Signer.Public }, true},
		{"| host, port and public key together | the client talks to the attacker's engine", func(d *EngineDesc, m *MemoryDesc) { *d, *m = evil.Desc(), evil.desc }, false},
		{"| removes mori's element | no identity is checked", func(d *EngineDesc, m *MemoryDesc) {
			d.Incarnation, d.PublicKey, d.Port, *m = 0, identity.PublicKey{}, evil.Desc().Port, evil.desc
		}, false},
		{"| a region's secret, id or size | the session is refused", func(_ *EngineDesc, m *MemoryDesc) { m.Secret[0] ^= 1 }, true},
		{"| a region's secret, id or size | the session is refused", func(_ *EngineDesc, m *MemoryDesc) { m.ID++ }, true},
		{"| a region's secret, id or size | the session is refused", func(_ *EngineDesc, m *MemoryDesc) { m.Size-- }, true},
	} {
		if !strings.Contains(string(doc), "\n"+c.row) {
			t.Errorf("docs/security.md has no row %q", c.row)
		}
		a, d, m := newSide(t, "a", 64, BackendTCP, nil), b.Desc(), b.desc
		c.change(&d, &m)
		if err := a.RegisterRemoteEngine(d); err != nil {
			t.Fatal(err)
		}
		if s, err := a.CreateSession(a.desc, m); (s == nil || err != nil) != c.refused {
			t.Errorf("%s: session %v, %v", c.row, s, err)
		}
	}
}
