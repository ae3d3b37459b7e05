// SPDX-License-Identifier: MIT

package control

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"mori/core/decode/decodetest"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
	"mori/io/internal/identity"
	"mori/io/internal/message"
	"mori/io/internal/message/messagetest"
)

// at returns a descriptor of engine b, of unknown incarnation, whose control plane is at a port.
func at(port int) descriptor.Engine {
	return descriptor.Engine{Key: "b", Host: "127.0.0.1", Port: port}
}

func TestAClientAsksAServer(t *testing.T) {
	a := newEngine(t, "a", "open sesame")
	c := newClient(t, a.desc, "open sesame")
	w, err := c.Greet(deadline(t))
	if err != nil || !w.Notify || len(w.Endpoints) != 2 || w.Endpoints[0].Name != "tcp" {
		t.Fatalf("%+v, %v", w, err)
	}
	if who, ok := a.Redeem(message.Ticket(c.self.Signer, w.Token, "tcp"), "tcp"); !ok || who != c.self.ID() {
		t.Errorf("the token admits %+v, %v", who, ok)
	}
	for id, want := range map[uint32]bool{1: true, 2: false} {
		known, size, err := c.Region(deadline(t), descriptor.RegionKey{ID: id})
		if err != nil || known != want || want && size != 64 {
			t.Errorf("region %d: %v, %d bytes, %v", id, known, size, err)
		}
	}
	a.host.open[string(w.Token)] = true
	if err := c.Drop(deadline(t), w.Token); err != nil || a.host.open[string(w.Token)] || a.tokens.len() != 0 {
		t.Errorf("drop: %v; open %v, %d tokens", err, a.host.open, a.tokens.len())
	}
	sent := []message.Tag{{UID: 5, Text: "x", Region: descriptor.RegionKey{ID: 1}}}
	if err := c.SendTags(deadline(t), sent); err != nil || len(a.host.tags) != 1 || a.host.tags[0] != sent[0] {
		t.Errorf("tags: %v, %v", err, a.host.tags)
	}
	if err := c.Beat(deadline(t)); err != nil {
		t.Error(err)
	}
}

// A host that no longer admits an engine sends it the reason and closes its connection.
func TestAClientThatIsNotAdmittedAnyMoreLearnsTheReason(t *testing.T) {
	a := newEngine(t, "a", "")
	c := newClient(t, a.desc, "")
	if err := c.Beat(deadline(t)); err != nil {
		t.Fatal(err)
	}
	a.host.mu.Lock()
	a.host.refused["client"] = errors.New("it was deregistered")
	a.host.mu.Unlock()
	if err := c.Beat(deadline(t)); !errors.Is(err, ErrTurnedAway) || err.Error() == "" {
		t.Errorf("%v, want %v", err, ErrTurnedAway)
	}
}

// slowControl answers requests for region 1 only after late was closed. The size of a region is its
// id.
func slowControl(t *testing.T, late <-chan struct{}) (port int) {
	t.Helper()
	b, err := identity.NewSigner()
	if err != nil {
		t.Fatal(err)
	}
	serve := func(c net.Conn) {
		defer func() { _ = c.Close() }()
		var h message.Hello
		ch := message.Challenge{Nonce: make([]byte, message.NonceLen), Incarnation: 5, PublicKey: b.Public[:]}
		for {
			kind, body, err := message.Read(c)
			if err != nil {
				return
			}
			switch kind {
			case message.TypeHello:
				_ = message.Decode(body, &h)
				_ = message.Write(c, message.TypeChallenge, &ch)
				continue
			case message.TypeProof:
				w := message.Welcome{Version: message.Version, Key: "b", Incarnation: 5, Token: make([]byte, message.TokenLen)}
				w.Signature = b.Sign(message.RoleWelcome, message.Closing(&h, &ch, &w)...)
				_ = message.Write(c, message.TypeWelcome, &w)
				continue
			}
			var q message.AskRegion
			_ = message.Decode(body, &q)
			if q.ID == 1 {
				<-late
			}
			_ = message.Write(c, message.TypeRegion, &message.Region{Known: true, Size: uint64(q.ID)})
		}
	}
	return listen(t, func(_ int, c net.Conn) { go serve(c) })
}

func TestALateAnswerIsNotTakenForThatToTheNextQuestion(t *testing.T) {
	late := make(chan struct{})
	c := newClient(t, at(slowControl(t, late)), "")
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := c.Region(short, descriptor.RegionKey{ID: 1}); err == nil {
		t.Fatal("an answer that never came")
	}
	close(late)
	for range 20 {
		if _, size, err := c.Region(deadline(t), descriptor.RegionKey{ID: 2}); err != nil || size != 2 {
			t.Fatalf("answered %d, %v", size, err)
		}
	}
}

// A client whose connection is closed before its Welcome, or whose Hello was altered, retries
// within its deadline.
func TestAClientThatWasEvictedTriesAgain(t *testing.T) {
	a := newEngine(t, "a", "")
	d := a.desc
	// The relay closes the first two connections, alters a byte of the third, and forwards the
	// rest.
	d.Port = listen(t, func(i int, c net.Conn) {
		if i < 2 {
			_ = c.Close()
			return
		}
		to, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port())))
		if err != nil {
			return
		}
		if i == 2 {
			head := make([]byte, message.HeaderBytes)
			_, _ = io.ReadFull(c, head)
			head[message.HeaderBytes-1] ^= 1 // of the checksum
			_, _ = to.Write(head)
		}
		go func() { _, _ = io.Copy(to, c); _ = to.Close() }()
		go func() { _, _ = io.Copy(c, to); _ = c.Close() }()
	})
	if w, err := newClient(t, d, "").Greet(deadline(t)); err != nil || w.Key != "a" {
		t.Errorf("%+v, %v", w, err)
	}
}

// A request waits for an unanswered earlier request no longer than its own deadline.
func TestAQuestionWaitsForAnotherWithinItsDeadline(t *testing.T) {
	c := newClient(t, newEngine(t, "a", "").desc, "")
	if err := c.mu.Lock(context.Background()); err != nil { // as a Beat to a stopped peer does
		t.Fatal(err)
	}
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, _, err := c.Region(ctx, descriptor.RegionKey{ID: 1})
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, errs.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want that the peer did not answer in time", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the question still waits after 20 s")
	}
}

// The bodies of a server's messages make a client allocate no more than a client's make a server.
func TestHostileLengthsFromAServer(t *testing.T) {
	for _, shared := range []identity.Secret{"", "secret"} {
		bodies := messagetest.HostileBodies()
		port := listen(t, func(i int, c net.Conn) {
			kind := message.TypeWelcome
			if shared != "" {
				kind = message.TypeChallenge
			}
			_, _, _ = message.Read(c)
			_, _ = c.Write(message.Frame(kind, bodies[i%len(bodies)]))
			_ = c.Close()
		})
		c := newClient(t, at(port), shared)
		for range bodies {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			decodetest.Bounded(t, 2*message.MaxBytes, func() {
				if w, err := c.Greet(ctx); err == nil {
					t.Errorf("greeted: %+v", w)
				}
			})
			cancel()
		}
	}
}

// A client on the same host reaches an engine without a network. If First is set, it tries the
// local socket before the network.
func TestAClientOfTheSameHostUsesTheLocalSocket(t *testing.T) {
	a := newEngine(t, "a", "")
	for name, c := range map[string]struct {
		port     int
		sameNode bool
		first    bool
		want     string // the network, "" for none
	}{
		"no network":       {PortNone, true, false, "unix"},
		"of another host":  {PortNone, false, false, ""},
		"the network":      {a.Port(), true, false, "tcp"},
		"the socket first": {a.Port(), true, true, "unix"},
	} {
		d := a.desc
		d.Port = c.port
		client := NewClient(newSelf(t, "client", ""), d, Near{SameNode: c.sameNode, First: func() bool { return c.first }})
		_, err := client.Greet(deadline(t))
		got := ""
		if err == nil {
			got = client.conn.RemoteAddr().Network()
		}
		if got != c.want || err != nil && !errors.Is(err, errs.ErrBadState) {
			t.Errorf("%s: over %q, want %q; %v", name, got, c.want, err)
		}
		client.Close()
	}
}
