// SPDX-License-Identifier: MIT

// Package controltest provides a client of the control plane that may violate the protocol.
package controltest

import (
	"bytes"
	"net"
	"testing"

	"mori/io/internal/identity"
	"mori/io/internal/message"
)

// A Caller implements the client's half of the handshake.
type Caller struct {
	Signer identity.Signer
	Hello  message.Hello
	Secret identity.Secret
	Reply  func(*message.Challenge) *message.Proof // nil: Right
}

// NewCaller returns a Caller that claims to be an engine, with a key pair of its own, and calls the
// engine peer.
func NewCaller(t testing.TB, key string, incarnation uint64, peer string, secret identity.Secret) *Caller {
	t.Helper()
	s, err := identity.NewSigner()
	if err != nil {
		t.Fatal(err)
	}
	return &Caller{Signer: s, Secret: secret, Hello: message.Hello{Version: message.Version, Key: key,
		Incarnation: incarnation, PeerKey: peer, Auth: true, Nonce: bytes.Repeat([]byte{7}, message.NonceLen),
		PublicKey: s.Public[:]}}
}

// Right returns the reply to a challenge that the protocol requires.
func (c *Caller) Right(ch *message.Challenge) *message.Proof {
	all := message.Opening(&c.Hello, ch)
	return &message.Proof{Proof: c.Secret.Proof(message.RoleClient, all...),
		Signature: c.Signer.Sign(message.RoleClient, all...)}
}

// Greet does the handshake on conn. It returns the type of the last answer, and the welcome or the
// text of the refusal.
func (c *Caller) Greet(t testing.TB, conn net.Conn) (kind message.Type, w message.Welcome, refusal string) {
	t.Helper()
	kind, body := Converse(t, conn, message.TypeHello, &c.Hello)
	if kind == message.TypeChallenge {
		var ch message.Challenge
		if err := message.Decode(body, &ch); err != nil {
			t.Fatal(err)
		}
		reply := c.Right
		if c.Reply != nil {
			reply = c.Reply
		}
		kind, body = Converse(t, conn, message.TypeProof, reply(&ch))
	}
	var f message.Failure
	var err error
	switch kind {
	case message.TypeWelcome:
		err = message.Decode(body, &w)
	case message.TypeFailure:
		err = message.Decode(body, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return kind, w, f.Text
}

// Welcomed does the handshake on conn and fails the test if that fails.
func (c *Caller) Welcomed(t testing.TB, conn net.Conn) *message.Welcome {
	t.Helper()
	kind, w, refusal := c.Greet(t, conn)
	if kind != message.TypeWelcome {
		t.Fatalf("%q is answered with type %d: %s", c.Hello.Key, kind, refusal)
	}
	return &w
}

// Ticket returns the ticket for a data connection of the caller.
func (c *Caller) Ticket(token []byte, transport string) []byte {
	return message.Ticket(c.Signer, token, transport)
}

// Converse sends a message and returns its answer.
func Converse(t testing.TB, c net.Conn, kind message.Type, body any) (message.Type, []byte) {
	t.Helper()
	if err := message.Write(c, kind, body); err != nil {
		t.Fatal(err)
	}
	got, answer, err := message.Read(c)
	if err != nil {
		t.Fatal(err)
	}
	return got, answer
}
