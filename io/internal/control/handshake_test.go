// SPDX-License-Identifier: MIT

package control

import (
	"io"
	"net"
	"testing"
	"time"

	"mori/io/internal/control/controltest"
	"mori/io/internal/identity"
	"mori/io/internal/message"
)

func TestARecordedProofIsWorthNothing(t *testing.T) {
	a := newEngine(t, "a", "open sesame")
	c := newCaller(t, "b", 5, a)
	greet := func(reply func(*message.Challenge) *message.Proof) message.Type {
		c.Reply = reply
		kind, _, _ := c.Greet(t, dial(t, a))
		return kind
	}
	var recorded *message.Proof
	if kind := greet(func(ch *message.Challenge) *message.Proof {
		recorded = c.Right(ch)
		return recorded
	}); kind != message.TypeWelcome {
		t.Fatalf("the right proof is answered with %d", kind)
	}
	with := func(s identity.Secret) func(*message.Challenge) *message.Proof {
		return func(ch *message.Challenge) *message.Proof {
			other := *c
			other.Secret = s
			return other.Right(ch)
		}
	}
	for name, reply := range map[string]func(*message.Challenge) *message.Proof{
		"recorded": func(*message.Challenge) *message.Proof { return recorded },
		"the server's own": func(ch *message.Challenge) *message.Proof {
			return &message.Proof{Proof: ch.Proof, Signature: c.Right(ch).Signature}
		},
		"none": func(ch *message.Challenge) *message.Proof {
			return &message.Proof{Signature: c.Right(ch).Signature}
		},
		"of another secret": with("open barley"),
		"of the empty":      with(""),
		"for another server": func(ch *message.Challenge) *message.Proof {
			other := *ch
			other.Incarnation++
			return c.Right(&other)
		},
		"without a signature": func(ch *message.Challenge) *message.Proof { return &message.Proof{Proof: c.Right(ch).Proof} },
		"with a signature of its proof": func(ch *message.Challenge) *message.Proof {
			return &message.Proof{Proof: c.Right(ch).Proof, Signature: c.Signer.Sign(message.RoleClient, ch.Proof)}
		},
	} {
		if kind := greet(reply); kind != message.TypeFailure {
			t.Errorf("a proof that is %s is answered with %d", name, kind)
		}
	}
}

func TestWithoutAGreetingNothingIsAnswered(t *testing.T) {
	a := newEngine(t, "a", "open sesame")
	for _, kind := range []message.Type{message.TypeAskRegion, message.TypeDrop, message.TypeProof} {
		c := dial(t, a)
		if got, _ := controltest.Converse(t, c, kind, &message.AskRegion{Secret: make([]byte, 16)}); got != message.TypeFailure {
			t.Errorf("a stranger's message of type %d is answered with %d", kind, got)
		}
	}
}

// An unfinished handshake ends at its limit, at whatever step it is. Bytes that trickle in do not
// extend it. A finished one stays open.
func TestUnfinishedHandshakesEndAtTheirLimit(t *testing.T) {
	a := newEngineWithin(t, "a", 300*time.Millisecond)
	for network, ip := range map[string]string{"tcp": "127.0.0.1", "unix": ""} {
		x := newCaller(t, "x", 5, a)
		finished := dialFrom(t, a, ip)
		x.Welcomed(t, finished)
		silent, challenged, trickling := dialFrom(t, a, ip), dialFrom(t, a, ip), dialFrom(t, a, ip)
		if kind, _ := controltest.Converse(t, challenged, message.TypeHello, &x.Hello); kind != message.TypeChallenge {
			t.Fatalf("%s: a hello is answered with type %d", network, kind)
		}
		go func() {
			for _, err := trickling.Write([]byte{byte(message.TypeHello)}); err == nil; _, err = trickling.Write([]byte{0}) {
				time.Sleep(40 * time.Millisecond)
			}
		}()
		for name, c := range map[string]net.Conn{"silent": silent, "challenged": challenged, "trickling": trickling} {
			if _, err := io.ReadAll(c); isTimeout(err) {
				t.Errorf("%s: the %s connection is open after 20 s", network, name)
			}
		}
		if kind, _ := controltest.Converse(t, finished, message.TypeBeat, &message.Beat{}); kind != message.TypeBeat {
			t.Errorf("%s: after its handshake a connection is answered with type %d", network, kind)
		}
	}
}

// Silent and unregistered clients from the network take no slot of the local socket, and vice
// versa.
func TestTheNetworkTakesNoSlotOfTheLocalSocket(t *testing.T) {
	a := newEngineWithin(t, "a", time.Minute)
	x := newCaller(t, "x", 5, a)
	early := map[string]net.Conn{"tcp": dialFrom(t, a, "127.0.0.9"), "unix": dialFrom(t, a, "")}
	beating := dialFrom(t, a, "")
	x.Welcomed(t, beating)
	flood := func(n int, ip string) (first net.Conn) {
		for i := range n {
			c := dialFrom(t, a, ip)
			if i == 0 {
				first = c
			}
		}
		return first
	}
	evicted := func(c net.Conn, what string) {
		t.Helper()
		if _, _, err := message.Read(c); err == nil || isTimeout(err) {
			t.Errorf("the first %s reads %v, want the end of its connection", what, err)
		}
	}
	evicted(flood(maxUnfinishedUnix+1, ""), "silent connection to the local socket")
	x.Welcomed(t, early["tcp"]) // older than all of them
	early["unix"] = dialFrom(t, a, "")
	first := flood(maxUnfinishedHost, "127.0.0.2")
	flood(maxUnfinished-maxUnfinishedHost, "127.0.0.3")
	flood(1, "127.0.0.4")
	evicted(first, "silent connection from the network")
	x.Welcomed(t, early["unix"])
	for i := range maxStrangers + 1 {
		x.Welcomed(t, dialFrom(t, a, []string{"127.0.0.2", "127.0.0.3"}[i%2]))
	}
	if kind, _ := controltest.Converse(t, beating, message.TypeBeat, &message.Beat{}); kind != message.TypeBeat {
		t.Errorf("a client of the local socket is answered with type %d", kind)
	}
}
