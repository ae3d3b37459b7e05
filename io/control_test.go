// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"
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
	for name, ticket := range map[string][]byte{"a token that was never issued": make([]byte, 16), "no token": nil, "a short one": {1}, "a long one": make([]byte, 48)} {
		if _, ok := a.redeem(ticket, "tcp"); ok {
			t.Errorf("%s admits", name)
		}
	}
	raw, err := a.control.issue(hello{Key: "b"})
	if err != nil {
		t.Fatal(err)
	}
	for _, transport := range []string{"shm", "tcp"} {
		if tok, ok := a.redeem(raw, transport); !ok || tok.key != "b" {
			t.Errorf("token for b over %s: %+v, %v", transport, tok, ok)
		}
		if _, ok := a.redeem(raw, transport); ok {
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

func FuzzReadControl(f *testing.F) {
	var b bytes.Buffer
	_ = writeControl(&b, controlHello, &hello{Version: 1, Key: "k"})
	f.Add(b.Bytes())
	b.Reset()
	_ = writeControl(&b, controlWelcome, &welcome{Token: []byte("t"), Endpoints: []endpointInfo{{Name: "tcp", Addr: "a"}}})
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		kind, body, err := readControl(bytes.NewReader(in))
		if err != nil {
			return
		}
		if len(body) != int(binary.BigEndian.Uint32(in[1:])) {
			t.Fatalf("type %d with %d bytes from %x", kind, len(body), in)
		}
		for _, to := range []any{new(hello), new(welcome), new(askRegion), new(regionReply), new(controlFailure), new(challenge), new(proofReply), new(dropLink), new(dropReply), new(tagsSent), new(tagsReply)} {
			_ = decodeControl(body, to)
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
