// SPDX-License-Identifier: MIT

package control

import (
	"bytes"
	"testing"

	"mori/io/internal/message"
)

func TestDataConnectionsNeedAToken(t *testing.T) {
	a := newEngine(t, "a", "")
	for name, ticket := range map[string][]byte{"a token that was never issued": make([]byte, 16), "no token": nil, "a short one": {1},
		"a long one": make([]byte, message.TicketLen+1), "as long as one": make([]byte, message.TicketLen)} {
		if _, ok := a.Redeem(ticket, "tcp"); ok {
			t.Errorf("%s admits", name)
		}
	}
	c := newCaller(t, "c", 5, a)
	raw, err := a.tokens.issue(c.Hello.ID(), a.admits)
	if err != nil {
		t.Fatal(err)
	}
	for _, transport := range []string{"shm", "tcp"} {
		if who, ok := a.Redeem(c.Ticket(raw, transport), transport); !ok || who.Key != "c" {
			t.Errorf("token for c over %s: %+v, %v", transport, who, ok)
		}
		if _, ok := a.Redeem(c.Ticket(raw, transport), transport); ok {
			t.Errorf("a token admits twice over %s", transport)
		}
	}
	greets(t, a)
}

// A client that sends Hello repeatedly gets one token and loses its connection. The token becomes
// invalid with the connection.
func TestATokenEndsWithItsConnection(t *testing.T) {
	a := newEngine(t, "a", "")
	c := dial(t, a)
	x := newCaller(t, "x", 5, a)
	w := x.Welcomed(t, c)
	if _, ok := a.Redeem(x.Ticket(w.Token, "shm"), "shm"); !ok || a.tokens.len() != 1 {
		t.Errorf("%d tokens, and the one that was given admits: %v", a.tokens.len(), ok)
	}
	for range 4096 {
		_ = message.Write(c, message.TypeHello, &message.Hello{Version: message.Version, Key: "x", PeerKey: "a"})
	}
	until(t, "the token is gone", func() bool { return a.tokens.len() == 0 })
	if _, ok := a.Redeem(x.Ticket(w.Token, "tcp"), "tcp"); ok {
		t.Error("a token admits after its connection has ended")
	}
	newCaller(t, "y", 6, a).Welcomed(t, dial(t, a)) // other clients are not locked out
}

func TestATokenAloneOpensNoDataConnection(t *testing.T) {
	a := newEngine(t, "a", "open sesame")
	c, other := newCaller(t, "b", 5, a), newCaller(t, "b", 5, a)
	raw, err := a.tokens.issue(c.Hello.ID(), a.admits)
	if err != nil {
		t.Fatal(err)
	}
	for name, ticket := range map[string][]byte{"token": raw, "zeros": append(bytes.Clone(raw), make([]byte, 64)...),
		"another's signature": other.Ticket(raw, "tcp"), "another transport": c.Ticket(raw, "verbs")} {
		if _, ok := a.Redeem(ticket, "tcp"); ok {
			t.Errorf("%s admits", name)
		}
	}
	if _, ok := a.Redeem(c.Ticket(raw, "tcp"), "tcp"); !ok {
		t.Error("the token with its signature does not admit")
	}
}
