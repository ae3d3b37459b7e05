// SPDX-License-Identifier: MIT

package control

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"mori/core/decode/decodetest"
	"mori/io/internal/descriptor"
	"mori/io/internal/identity"
	"mori/io/internal/message"
	"mori/io/internal/message/messagetest"
)

// Whatever an unregistered client sends, it loses only its connection, and nobody else is affected.
func TestStrangersAtTheControlPlane(t *testing.T) {
	a := newEngine(t, "a", "")
	huge := []byte{byte(message.TypeHello), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	var early, wrongPeer, oldVersion, restarted bytes.Buffer
	_ = message.Write(&early, message.TypeAskRegion, &message.AskRegion{ID: 0, Secret: make([]byte, 16)})
	_ = message.Write(&wrongPeer, message.TypeHello, &message.Hello{Version: message.Version, Key: "x", PeerKey: "someone else"})
	_ = message.Write(&oldVersion, message.TypeHello, &message.Hello{Version: 99, Key: "x", PeerKey: "a"})
	_ = message.Write(&restarted, message.TypeHello,
		&message.Hello{Version: message.Version, Key: "x", PeerKey: "a", PeerIncarnation: 12345})
	noArray := message.Frame(message.TypeHello, []byte{0xc1})
	altered := bytes.Clone(restarted.Bytes())
	altered[len(altered)-1] ^= 1
	noise := bytes.Repeat([]byte{0xee, 7, 1}, 2000)
	for name, sent := range map[string][]byte{"huge length": huge, "noise": noise, "question before hello": early.Bytes(),
		"wrong peer": wrongPeer.Bytes(), "old version": oldVersion.Bytes(), "restarted": restarted.Bytes(),
		"body that is no array": noArray, "altered": altered} {
		c := dial(t, a)
		_, _ = c.Write(sent)
		kind, body, err := message.Read(c)
		if unreadable := name == "huge length" || name == "noise" || name == "altered"; unreadable == (err == nil) {
			t.Errorf("%s: answered %v, %v", name, kind, err)
		}
		var f message.Failure
		if err == nil && (kind != message.TypeFailure || message.Decode(body, &f) != nil || f.Text == "") {
			t.Errorf("%s: answered with type %d", name, kind)
		}
		if _, err := io.ReadAll(c); err != nil && !isReset(err) {
			t.Errorf("%s: the connection stayed open: %v", name, err)
		}
	}
	half := dial(t, a)
	_, _ = half.Write(huge[:3])
	_ = half.Close()
	greets(t, a)
}

func TestKeysOfMoreThan256BytesAreRefused(t *testing.T) {
	a := newEngine(t, "a", "")
	long := strings.Repeat("k", descriptor.MaxKey+1)
	c := dial(t, a)
	_ = message.Write(c, message.TypeHello, &message.Hello{Version: message.Version, Key: long, PeerKey: "a"})
	if kind, _, err := message.Read(c); err != nil || kind != message.TypeFailure {
		t.Errorf("a hello with a key of %d bytes is answered with type %d, %v", len(long), kind, err)
	}
}

// A client that opens more silent connections than there are slots, and continues to, locks nobody
// out.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	a := newEngine(t, "a", "")
	for range 1100 {
		dial(t, a)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var open []net.Conn
		for {
			select {
			case <-stop:
				for _, c := range open {
					_ = c.Close()
				}
				return
			case <-time.After(time.Millisecond):
			}
			if c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port()))); err == nil {
				open = append(open, c)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	for range 5 {
		greets(t, a)
	}
	if n := a.conns.unfinished.Len(); n > maxUnfinishedHost {
		t.Errorf("%d connections have no handshake, want at most %d", n, maxUnfinishedHost)
	}
}

// Unregistered clients that complete the handshake and stay take no slot of a registered peer.
func TestStrangersTakeNoSlotOfAKnownPeer(t *testing.T) {
	a := newEngine(t, "a", "")
	a.host.known["b"] = true
	c := dial(t, a)
	known := newCaller(t, "b", 7, a)
	known.Welcomed(t, c)
	first, stranger := dial(t, a), newCaller(t, "stranger", 5, a)
	stranger.Welcomed(t, first)
	for range maxStrangersHost {
		stranger.Welcomed(t, dial(t, a))
	}
	if _, _, err := message.Read(first); err == nil || isTimeout(err) {
		t.Errorf("the first stranger reads %v, want the end of its connection", err)
	}
	if err := message.Write(c, message.TypeBeat, &message.Beat{}); err != nil {
		t.Fatal(err)
	}
	if kind, _, err := message.Read(c); err != nil || kind != message.TypeBeat {
		t.Errorf("the known peer's connection: type %d, %v", kind, err)
	}
	greets(t, a)
}

// A hostile message of each type, before and after a Hello, costs the sender its connection at
// most, with a secret and without.
func TestHostileLengthsAtTheControlPlane(t *testing.T) {
	for _, shared := range []string{"", "secret"} {
		e := newEngine(t, "a", identity.Secret(shared))
		signer, err := identity.NewSigner()
		if err != nil {
			t.Fatal(err)
		}
		var greeting bytes.Buffer
		_ = message.Write(&greeting, message.TypeHello, &message.Hello{Version: message.Version, Key: "x", PeerKey: "a",
			Nonce: make([]byte, message.NonceLen), Auth: shared != "", PublicKey: signer.Public[:]})
		sent := 0
		grew := decodetest.Allocated(func() {
			for kind := message.TypeHello; kind <= message.TypeBeat; kind++ {
				for i, body := range messagetest.HostileBodies() {
					if i%5 != 0 {
						continue // one body per claim, at varying positions
					}
					c := dial(t, e)
					if i%2 == 0 {
						_, _ = c.Write(greeting.Bytes())
						_, _, _ = message.Read(c)
					}
					n, _ := c.Write(message.Frame(kind, body))
					sent += n
					_, _, _ = message.Read(c)
					_ = c.Close()
				}
			}
		})
		most := uint64(sent*decodetest.PerByte + 16*decodetest.Slack) // includes both ends' buffers and log lines
		if grew > most {
			t.Errorf("%d bytes allocated for %d bytes sent, want at most %d", grew, sent, most)
		}
		c := dial(t, e)
		_, _ = c.Write(greeting.Bytes())
		if kind, _, err := message.Read(c); err != nil || kind != message.TypeWelcome && kind != message.TypeChallenge {
			t.Errorf("afterwards a hello is answered with type %d, %v", kind, err)
		}
	}
}

func TestStrangersCannotSendBadTags(t *testing.T) {
	a := newEngine(t, "a", "")
	for name, packed := range map[string][]byte{"region cut short": {0, 1}, "cut short": {5}, "text cut short": {5, 3, 'a'},
		"empty": {5, 0}, "not UTF-8": {5, 1, 0xff}, "too long": append([]byte{5, 65}, bytes.Repeat([]byte("x"), 65)...), "endless uid": bytes.Repeat([]byte{0xff}, 20)} {
		c := dial(t, a)
		newCaller(t, "x", 5, a).Welcomed(t, c)
		if name != "region cut short" {
			packed = append(append([]byte{0}, make([]byte, 16)...), append([]byte{1}, packed...)...)
		}
		_ = message.Write(c, message.TypeTags, &message.Tags{Packed: packed})
		if kind, _, err := message.Read(c); err != nil || kind != message.TypeFailure {
			t.Errorf("%s: answered %v, %v", name, kind, err)
		}
		if n := len(a.host.tags); n != 0 {
			t.Errorf("%s: %d tags were taken", name, n)
		}
	}
	greets(t, a)
}
