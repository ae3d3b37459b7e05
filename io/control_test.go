// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"

	"mori/core/decode/decodetest"
)

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

// What a stranger may send: each costs the connection, and nothing else.
func TestStrangersAtTheControlPlane(t *testing.T) {
	a, _, s := pair(t, 64, BackendRDMA, nil)
	huge := []byte{byte(controlHello), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	var early, wrongPeer, oldVersion, restarted bytes.Buffer
	_ = writeControl(&early, controlAskRegion, &askRegion{ID: 0, Secret: make([]byte, 16)})
	_ = writeControl(&wrongPeer, controlHello, &hello{Version: controlVersion, Key: "x", PeerKey: "someone else"})
	_ = writeControl(&oldVersion, controlHello, &hello{Version: 99, Key: "x", PeerKey: "a"})
	_ = writeControl(&restarted, controlHello, &hello{Version: controlVersion, Key: "x", PeerKey: "a", PeerIncarnation: 12345})
	noArray := binary.BigEndian.AppendUint32([]byte{byte(controlHello), 0, 0, 0, 1}, controlSum([]byte{byte(controlHello), 0, 0, 0, 1}, []byte{0xc1}))
	noArray = append(noArray, 0xc1)
	altered := bytes.Clone(restarted.Bytes())
	altered[len(altered)-1] ^= 1
	noise := make([]byte, 5000)
	fill(noise, 8)
	noise[0] = 0xee
	for name, sent := range map[string][]byte{"huge length": huge, "noise": noise, "question before hello": early.Bytes(), "wrong peer": wrongPeer.Bytes(),
		"old version": oldVersion.Bytes(), "restarted": restarted.Bytes(), "body that is no array": noArray, "altered": altered} {
		c := dialControl(t, a.Engine)
		_, _ = c.Write(sent)
		kind, body, err := readControl(c)
		var f controlFailure
		if err == nil && (kind != controlError || decodeControl(body, &f) != nil || f.Text == "") {
			t.Errorf("%s: answered with type %d", name, kind)
		}
		if _, err := io.ReadAll(c); err != nil && !isReset(err) {
			t.Errorf("%s: the connection stayed open: %v", name, err)
		}
	}
	half := dialControl(t, a.Engine)
	_, _ = half.Write(huge[:3])
	_ = half.Close()
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 1))
}

func isReset(err error) bool {
	op, ok := err.(*net.OpError)
	return ok && !op.Timeout()
}

func TestDataConnectionsNeedAToken(t *testing.T) {
	a, _, s := pair(t, 64, BackendRDMA, nil)
	for name, ticket := range map[string][]byte{"a token that was never issued": make([]byte, 16), "no token": nil, "a short one": {1}, "a long one": make([]byte, ticketLen+1), "as long as one": make([]byte, ticketLen)} {
		if _, ok := a.redeem(ticket, "tcp"); ok {
			t.Errorf("%s admits", name)
		}
	}
	c := newCaller(t, "c", 5, a)
	raw, err := a.control.issue(c.hello)
	if err != nil {
		t.Fatal(err)
	}
	for _, transport := range []string{"shm", "tcp"} {
		if tok, ok := a.redeem(c.ticket(raw, transport), transport); !ok || tok.who.key != "c" {
			t.Errorf("token for c over %s: %+v, %v", transport, tok, ok)
		}
		if _, ok := a.redeem(c.ticket(raw, transport), transport); ok {
			t.Errorf("a token admits twice over %s", transport)
		}
	}
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 1))
}

func TestTokensAreBounded(t *testing.T) {
	a := newSide(t, "a", 8, BackendTCP, nil)
	for range maxTokens {
		if _, err := a.control.issue(hello{Key: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.control.issue(hello{Key: "x"}); err == nil {
		t.Error("one more token than the limit")
	}
	a.control.mu.Lock()
	for k, tok := range a.control.tokens {
		tok.born = tok.born.Add(-2 * tokenLife)
		a.control.tokens[k] = tok
	}
	a.control.mu.Unlock()
	if _, err := a.control.issue(hello{Key: "x"}); err != nil {
		t.Errorf("after the old ones expired: %v", err)
	}
}

// controlBodies are one of each body of a control message.
func controlBodies() []any {
	return []any{new(hello), new(challenge), new(proofReply), new(welcome), new(askRegion), new(regionReply), new(dropLink), new(dropReply), new(tagsSent),
		new(tagsReply), new(heartbeat), new(controlFailure)}
}

// controlFrame is a message with any body.
func controlFrame(kind controlType, body []byte) []byte {
	out := binary.BigEndian.AppendUint32([]byte{byte(kind)}, uint32(len(body)))
	out = binary.BigEndian.AppendUint32(out, controlSum(out, body))
	return append(out, body...)
}

// hostileBodies claim far more than they have: binaries, texts and arrays of 768 MiB, at each place of an array of 8.
func hostileBodies() (all [][]byte) {
	for at := range 8 {
		for _, claim := range [][]byte{{0xc6, 0x30, 0, 0, 0, 'x'}, {0xdb, 0x30, 0, 0, 0, 'x'}, {0xdd, 0x30, 0, 0, 0, 0xc0}, {0xdf, 0x30, 0, 0, 0, 0xc0}} {
			body := append([]byte{0x98}, bytes.Repeat([]byte{0xc0}, at)...)
			all = append(all, append(body, claim...))
		}
	}
	many := append([]byte{0x97, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xdd, 0, 0, 0xff, 0}, bytes.Repeat([]byte{0xc0}, 0xff00)...) // endpoints
	return append(all, many, append([]byte{0xdd, 0, 0, 0xff, 0}, bytes.Repeat([]byte{0x91}, 0xff00)...))
}

// No body makes its reader allocate more than the bound: fatal "out of memory" of the runtime cannot be recovered from.
func TestControlMessagesAllocateNoMoreThanTheyBring(t *testing.T) {
	for _, body := range hostileBodies() {
		for _, to := range controlBodies() {
			decodetest.Bounded(t, len(body), func() { _ = decodeControl(body, to) })
		}
	}
}

// A stranger's message of each type, before and after a hello, costs the connection at most, with a secret and without.
func TestHostileLengthsAtTheControlPlane(t *testing.T) {
	for _, shared := range []string{"", "secret"} {
		e, err := NewEngine("a", EngineConfig{AuthSecret: shared})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		if err := e.CreateBackend(BackendTCP, nil); err != nil {
			t.Fatal(err)
		}
		var greeting bytes.Buffer
		_ = writeControl(&greeting, controlHello, &hello{Version: controlVersion, Key: "x", PeerKey: "a", Nonce: make([]byte, nonceLen), Auth: shared != ""})
		sent := 0
		grew := decodetest.Allocated(func() {
			for kind := controlHello; kind <= controlBeat; kind++ {
				for i, body := range hostileBodies() {
					if i%5 != 0 {
						continue // one of each claim, at some place
					}
					c := dialControl(t, e)
					if i%2 == 0 {
						_, _ = c.Write(greeting.Bytes())
						_, _, _ = readControl(c)
					}
					n, _ := c.Write(controlFrame(kind, body))
					sent += n
					_, _, _ = readControl(c)
					_ = c.Close()
				}
			}
		})
		if most := uint64(sent*decodetest.PerByte + 16*decodetest.Slack); grew > most { // both ends' buffers and log lines are in it
			t.Errorf("%d bytes allocated for %d bytes sent, want at most %d", grew, sent, most)
		}
		c := dialControl(t, e)
		_, _ = c.Write(greeting.Bytes())
		if kind, _, err := readControl(c); err != nil || kind != controlWelcome && kind != controlChallenge {
			t.Errorf("afterwards a hello is answered with type %d, %v", kind, err)
		}
	}
}

// Whoever dials is as safe from the engine that answers.
func TestHostileLengthsFromAServer(t *testing.T) {
	for _, shared := range []string{"", "secret"} {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lis.Close() })
		bodies := hostileBodies()
		go func() {
			for i := 0; ; i++ {
				c, err := lis.Accept()
				if err != nil {
					return
				}
				kind := controlWelcome
				if shared != "" {
					kind = controlChallenge
				}
				_, _, _ = readControl(c)
				_, _ = c.Write(controlFrame(kind, bodies[i%len(bodies)]))
				_ = c.Close()
			}
		}()
		e, err := NewEngine("a", EngineConfig{AuthSecret: shared})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		p := newPeer(e, EngineDesc{Key: "b", Host: "127.0.0.1", Port: lis.Addr().(*net.TCPAddr).Port})
		for range bodies {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			decodetest.Bounded(t, 2*controlMaxBytes, func() {
				if w, err := p.ctl.greet(ctx); err == nil {
					t.Errorf("greeted: %+v", w)
				}
			})
			cancel()
		}
		p.close(ErrClosed)
	}
}

func FuzzReadControl(f *testing.F) {
	var b bytes.Buffer
	_ = writeControl(&b, controlHello, &hello{Version: 1, Key: "k"})
	f.Add(b.Bytes())
	b.Reset()
	_ = writeControl(&b, controlWelcome, &welcome{Token: []byte("t"), Endpoints: []endpointInfo{{Name: "tcp", Addr: "a"}}})
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		var kind controlType
		var body []byte
		var err error
		decodetest.Bounded(t, len(in), func() { kind, body, err = readControl(bytes.NewReader(in)) })
		if err != nil {
			return
		}
		if len(body) != int(binary.BigEndian.Uint32(in[1:])) {
			t.Fatalf("type %d with %d bytes from %x", kind, len(body), in)
		}
		for _, to := range controlBodies() {
			decodetest.Bounded(t, len(in), func() { _ = decodeControl(body, to) })
		}
	})
}

func TestOrderHoldsUnderAnyCompletionOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 200 {
		var o order
		all := make([]*transfer, 1+rng.IntN(20))
		for i := range all {
			all[i] = &transfer{status: NewStatus()}
			all[i].status.SetCode(CodeInProgress)
			o.add(all[i])
		}
		for _, i := range rng.Perm(len(all)) {
			code := CodeSuccess
			if rng.IntN(4) == 0 {
				code = CodeErrRDMAOp
			}
			o.finish(all[i], code, "", time.Time{})
			open := false
			for k, x := range all {
				c := x.status.Code()
				if c == CodeSuccess && open {
					t.Fatalf("transfer %d is SUCCESS while an earlier one is in progress", k)
				}
				open = open || c == CodeInProgress
			}
			if code.Failed() && all[i].status.Code() != code {
				t.Fatal("a failure was held back")
			}
		}
		if o.head != nil || o.tail != nil || o.inflight != 0 {
			t.Fatalf("left over: %+v", &o)
		}
	}
}

func TestInboundRemembersAndForgets(t *testing.T) {
	in := &inbound{}
	for uid := range uint64(100_000) {
		in.add(uid)
	}
	if !in.has(0) || !in.has(99_999) || in.has(100_000) {
		t.Error("consecutive uids are not remembered")
	}
	for i := range uint64(2 * maxInboundWords) {
		in.add(1<<40 + i*64)
	}
	if len(in.words) > maxInboundWords || len(in.age) > maxInboundWords {
		t.Errorf("%d words kept, want at most %d", len(in.words), maxInboundWords)
	}
	if in.has(0) || !in.has(1<<40+(2*maxInboundWords-1)*64) {
		t.Error("the oldest should be forgotten, the newest kept")
	}
}
