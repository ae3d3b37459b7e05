// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// A journal keeps what an engine logs.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) string() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// has waits for a log line with all the words.
func (j *journal) has(t *testing.T, words ...string) {
	t.Helper()
	var text string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		text = j.string()
		for _, line := range strings.Split(text, "\n") {
			all := true
			for _, w := range words {
				all = all && strings.Contains(line, w)
			}
			if all {
				return
			}
		}
	}
	t.Errorf("no line with %q in:\n%s", words, text)
}

// guarded makes an engine with a secret and a journal.
func guarded(t *testing.T, key, secret string) (*side, *journal) {
	t.Helper()
	e, err := NewEngine(key, EngineConfig{AuthSecret: secret})
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{}
	e.log = slog.New(slog.NewTextHandler(j, nil))
	return newSideOf(t, e, 4096, BackendRDMA, nil), j
}

func TestWhoKnowsTheSecretIsLetIn(t *testing.T) {
	a, _ := guarded(t, "a", "open sesame")
	b, _ := guarded(t, "b", "open sesame")
	s := meet(t, a, b)
	fill(a.mem, 1)
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{4096}, 1))
	if !bytes.Equal(a.mem, b.mem) {
		t.Error("bytes differ")
	}
}

func TestWhoDoesNotIsRefusedOnBothSides(t *testing.T) {
	for name, secrets := range map[string][2]string{"another secret": {"one", "two"}, "no secret here": {"", "two"}, "no secret there": {"one", ""}} {
		t.Run(name, func(t *testing.T) {
			a, ja := guarded(t, "a", secrets[0])
			b, jb := guarded(t, "b", secrets[1])
			if err := errors.Join(a.RegisterRemoteEngine(b.Desc()), b.RegisterRemoteEngine(a.Desc())); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			s, err := a.CreateSession(a.desc, b.desc)
			if s != nil || !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "MORI_AUTH_SECRET") || !strings.Contains(err.Error(), `"b"`) {
				t.Errorf("session %v, %v", s, err)
			}
			if time.Since(start) > 10*time.Second {
				t.Error("the refusal came by a timeout")
			}
			jb.has(t, "MORI_AUTH_SECRET", `b`)
			if secrets[0] != "" {
				ja.has(t, "MORI_AUTH_SECRET", `b`)
			}
			if strings.Contains(jb.string(), "two") || strings.Contains(err.Error(), "two") {
				t.Error("a secret was told")
			}
		})
	}
}

// converse sends messages and returns the type of each answer.
func converse(t *testing.T, c net.Conn, kind controlType, body any) (controlType, []byte) {
	t.Helper()
	if err := writeControl(c, kind, body); err != nil {
		t.Fatal(err)
	}
	got, answer, err := readControl(c)
	if err != nil {
		t.Fatal(err)
	}
	return got, answer
}

// A caller speaks the client's half of the handshake.
type caller struct {
	signer
	hello  hello
	secret secret
	reply  func(*challenge) *proofReply // nil: the right one
}

// newCaller claims to be an engine, with a key pair of its own.
func newCaller(t *testing.T, key string, incarnation uint64, to *side) *caller {
	t.Helper()
	s, err := newSigner()
	if err != nil {
		t.Fatal(err)
	}
	return &caller{signer: s, secret: to.secret, hello: hello{Version: controlVersion, Key: key, Incarnation: incarnation, PeerKey: to.key,
		Nonce: bytes.Repeat([]byte{7}, nonceLen), Auth: true, PublicKey: s.public[:]}}
}

// right is the reply to a challenge that follows the protocol.
func (c *caller) right(ch *challenge) *proofReply {
	all := opening(&c.hello, ch)
	return &proofReply{Proof: c.secret.proof(roleClient, all...), Signature: c.sign(roleClient, all...)}
}

// greet goes through the handshake on conn and returns the type of the last answer, and its welcome or the text of its refusal.
func (c *caller) greet(t *testing.T, conn net.Conn) (kind controlType, w welcome, refusal string) {
	t.Helper()
	kind, body := converse(t, conn, controlHello, &c.hello)
	if kind == controlChallenge {
		var ch challenge
		if err := decodeControl(body, &ch); err != nil {
			t.Fatal(err)
		}
		reply := c.right
		if c.reply != nil {
			reply = c.reply
		}
		kind, body = converse(t, conn, controlProof, reply(&ch))
	}
	var f controlFailure
	var err error
	switch kind {
	case controlWelcome:
		err = decodeControl(body, &w)
	case controlError:
		err = decodeControl(body, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return kind, w, f.Text
}

func TestARecordedProofIsWorthNothing(t *testing.T) {
	a, _ := guarded(t, "a", "open sesame")
	c := newCaller(t, "b", 5, a)
	greet := func(reply func(*challenge) *proofReply) controlType {
		c.reply = reply
		kind, _, _ := c.greet(t, dialControl(t, a.Engine))
		return kind
	}
	var recorded *proofReply
	if kind := greet(func(ch *challenge) *proofReply {
		recorded = c.right(ch)
		return recorded
	}); kind != controlWelcome {
		t.Fatalf("the right proof is answered with %d", kind)
	}
	with := func(s secret) func(*challenge) *proofReply {
		return func(ch *challenge) *proofReply {
			other := *c
			other.secret = s
			return other.right(ch)
		}
	}
	for name, reply := range map[string]func(*challenge) *proofReply{
		"recorded":          func(*challenge) *proofReply { return recorded },
		"the server's own":  func(ch *challenge) *proofReply { return &proofReply{Proof: ch.Proof, Signature: c.right(ch).Signature} },
		"none":              func(ch *challenge) *proofReply { return &proofReply{Signature: c.right(ch).Signature} },
		"of another secret": with("open barley"),
		"of the empty":      with(""),
		"for another server": func(ch *challenge) *proofReply {
			other := *ch
			other.Incarnation++
			return c.right(&other)
		},
		"without a signature": func(ch *challenge) *proofReply { return &proofReply{Proof: c.right(ch).Proof} },
		"with a signature of its proof": func(ch *challenge) *proofReply {
			return &proofReply{Proof: c.right(ch).Proof, Signature: c.sign(roleClient, ch.Proof)}
		},
	} {
		if kind := greet(reply); kind != controlError {
			t.Errorf("a proof that is %s is answered with %d", name, kind)
		}
	}
}

// TestEveryFieldIsProven changes each field of the handshake's messages: the proofs and signatures cover all of them.
func TestEveryFieldIsProven(t *testing.T) {
	h, c := hello{Key: "a", Nonce: []byte{1}, PublicKey: []byte{2}}, challenge{Nonce: []byte{3}, PublicKey: []byte{4}}
	w := welcome{Key: "b", Token: []byte{5}, Endpoints: []endpointInfo{{Name: "tcp", Addr: "x"}}}
	before := digest("", closing(&h, &c, &w)...)
	differ := func(what string, message any) {
		v := reflect.ValueOf(message).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name == "_msgpack" || name == "Proof" || name == "Signature" {
				continue
			}
			f := v.Field(i)
			old := reflect.New(f.Type()).Elem()
			old.Set(f)
			switch f.Interface().(type) {
			case int:
				f.SetInt(f.Int() + 1)
			case uint64:
				f.SetUint(f.Uint() + 1)
			case string:
				f.SetString(f.String() + "x")
			case bool:
				f.SetBool(!f.Bool())
			case []byte:
				f.SetBytes([]byte{0xff})
			case []endpointInfo:
				f.Set(reflect.ValueOf([]endpointInfo{{Name: "tcp", Addr: "y"}}))
			default:
				t.Fatalf("field %s of a %s has a type that this test does not know", name, what)
			}
			if bytes.Equal(before, digest("", closing(&h, &c, &w)...)) {
				t.Errorf("nothing covers field %s of a %s", name, what)
			}
			f.Set(old)
		}
	}
	differ("hello", &h)
	differ("challenge", &c)
	differ("welcome", &w)
}

func TestATokenAloneOpensNoDataConnection(t *testing.T) {
	a, _ := guarded(t, "a", "open sesame")
	c, other := newCaller(t, "b", 5, a), newCaller(t, "b", 5, a)
	raw, err := a.control.issue(c.hello)
	if err != nil {
		t.Fatal(err)
	}
	for name, ticket := range map[string][]byte{"token": raw, "zeros": append(bytes.Clone(raw), make([]byte, 64)...), "another's signature": other.ticket(raw, "tcp"),
		"another transport": c.ticket(raw, "verbs")} {
		if _, ok := a.redeem(ticket, "tcp"); ok {
			t.Errorf("%s admits", name)
		}
	}
	if _, ok := a.redeem(c.ticket(raw, "tcp"), "tcp"); !ok {
		t.Error("the token with its signature does not admit")
	}
}

func TestWithoutAGreetingNothingIsAnswered(t *testing.T) {
	a, _ := guarded(t, "a", "open sesame")
	for _, kind := range []controlType{controlAskRegion, controlDrop, controlProof} {
		c := dialControl(t, a.Engine)
		if got, _ := converse(t, c, kind, &askRegion{Secret: a.desc.Secret[:]}); got != controlError {
			t.Errorf("a stranger's message of type %d is answered with %d", kind, got)
		}
	}
}
