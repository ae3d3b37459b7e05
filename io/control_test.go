// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
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
		if unreadable := name == "huge length" || name == "noise" || name == "altered"; unreadable == (err == nil) {
			t.Errorf("%s: answered %v, %v", name, kind, err)
		}
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

// welcomed completes a handshake on c.
func welcomed(t *testing.T, c net.Conn, as *caller) *welcome {
	t.Helper()
	kind, w, refusal := as.greet(t, c)
	if kind != controlWelcome {
		t.Fatalf("%q is answered with type %d: %s", as.hello.Key, kind, refusal)
	}
	return &w
}

// tokens is how many tokens are good.
func tokens(e *Engine) int {
	e.control.mu.Lock()
	defer e.control.mu.Unlock()
	return len(e.control.tokens)
}

// waitUntil polls for what other goroutines bring about.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// A client that greets over and over gets one token and loses its connection; the token ends with it.
func TestATokenEndsWithItsConnection(t *testing.T) {
	a := newSide(t, "a", 8, BackendTCP, nil)
	c := dialControl(t, a.Engine)
	x := newCaller(t, "x", 5, a)
	w := welcomed(t, c, x)
	if _, ok := a.redeem(x.ticket(w.Token, "shm"), "shm"); !ok || tokens(a.Engine) != 1 {
		t.Errorf("%d tokens, and the one that was given admits: %v", tokens(a.Engine), ok)
	}
	for range 4096 {
		_ = writeControl(c, controlHello, &hello{Version: controlVersion, Key: "x", PeerKey: "a"})
	}
	waitUntil(t, "the token is gone", func() bool { return tokens(a.Engine) == 0 })
	if _, ok := a.redeem(x.ticket(w.Token, "tcp"), "tcp"); ok {
		t.Error("a token admits after its connection has ended")
	}
	welcomed(t, dialControl(t, a.Engine), newCaller(t, "y", 6, a)) // nobody is locked out
}

func TestKeysOfMoreThan256BytesAreRefused(t *testing.T) {
	a := newSide(t, "a", 8, BackendTCP, nil)
	long := strings.Repeat("k", MaxKey+1)
	c := dialControl(t, a.Engine)
	_ = writeControl(c, controlHello, &hello{Version: controlVersion, Key: long, PeerKey: "a"})
	if kind, _, err := readControl(c); err != nil || kind != controlError {
		t.Errorf("a hello with a key of %d bytes is answered with type %d, %v", len(long), kind, err)
	}
	if _, err := NewEngine(long, EngineConfig{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("an engine with such a key: %v", err)
	}
}

// Whoever opens more silent connections than there are slots, and goes on opening them, keeps nobody out.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	a, b := newSide(t, "a", 64, BackendTCP, nil), newSide(t, "b", 64, BackendTCP, nil)
	for range 1100 {
		dialControl(t, a.Engine)
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
			if c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Desc().Port))); err == nil {
				open = append(open, c)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	for range 5 {
		if err := b.RegisterRemoteEngine(a.Desc()); err != nil {
			t.Fatal(err)
		}
		s, err := b.CreateSession(b.desc, a.desc)
		if err != nil {
			t.Fatal(err)
		}
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 1))
		if err := b.DeregisterRemoteEngine(a.Desc()); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.control.conns.unfinished.Len(); n > maxUnfinishedHost {
		t.Errorf("%d connections have no handshake, want at most %d", n, maxUnfinishedHost)
	}
}

// Strangers that greet, and stay, take no slot of a peer that is registered.
func TestStrangersTakeNoSlotOfAKnownPeer(t *testing.T) {
	a, b, s := pair(t, 64, BackendTCP, nil)
	if err := a.RegisterRemoteEngine(b.Desc()); err != nil {
		t.Fatal(err)
	}
	c := dialControl(t, a.Engine)
	known := newCaller(t, "b", b.incarnation, a)
	known.signer, known.hello.PublicKey = b.signer, b.signer.public[:]
	welcomed(t, c, known)
	first, stranger := dialControl(t, a.Engine), newCaller(t, "stranger", 5, a)
	welcomed(t, first, stranger)
	for range maxStrangersHost {
		welcomed(t, dialControl(t, a.Engine), stranger)
	}
	if _, _, err := readControl(first); err == nil || isTimeout(err) {
		t.Errorf("the first stranger hears %v, want the end of its connection", err)
	}
	if err := writeControl(c, controlBeat, &heartbeat{}); err != nil {
		t.Fatal(err)
	}
	if kind, _, err := readControl(c); err != nil || kind != controlBeat {
		t.Errorf("the known peer's connection: type %d, %v", kind, err)
	}
	succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 1))
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// A client whose connection is closed before it is welcomed, or whose hello was altered, tries again
// within its deadline.
func TestAClientThatWasEvictedTriesAgain(t *testing.T) {
	a, b := newSide(t, "a", 64, BackendTCP, nil), newSide(t, "b", 64, BackendTCP, nil)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	go func() { // closes the first two, alters a byte of the third, and passes on the rest
		for i := 0; ; i++ {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			if i < 2 {
				_ = c.Close()
				continue
			}
			to, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Desc().Port)))
			if err != nil {
				return
			}
			if i == 2 {
				head := make([]byte, controlHeader)
				_, _ = io.ReadFull(c, head)
				head[controlHeader-1] ^= 1 // of the checksum
				_, _ = to.Write(head)
			}
			go func() { _, _ = io.Copy(to, c); _ = to.Close() }()
			go func() { _, _ = io.Copy(c, to); _ = c.Close() }()
		}
	}()
	d := a.Desc()
	d.Port = lis.Addr().(*net.TCPAddr).Port
	p := newPeer(b.Engine, d)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if w, err := p.ctl.greet(ctx); err != nil || w.Key != "a" {
		t.Errorf("%+v, %v", w, err)
	}
	p.close(ErrClosed)
}

// A question waits for an earlier one that has no answer no longer than its own deadline.
func TestAQuestionWaitsForAnotherWithinItsDeadline(t *testing.T) {
	_, b, s := pair(t, 64, BackendTCP, nil)
	p := s.peer
	if err := p.ctl.mu.lock(context.Background()); err != nil { // as a heartbeat to a stopped peer has it
		t.Fatal(err)
	}
	defer p.ctl.mu.unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.verify(ctx) }()
	select {
	case err := <-done:
		if !errors.Is(err, ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want that the peer did not answer in time", err)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("engine %q still waits after 20 s", b.Desc().Key)
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
		signer, err := newSigner()
		if err != nil {
			t.Fatal(err)
		}
		var greeting bytes.Buffer
		_ = writeControl(&greeting, controlHello, &hello{Version: controlVersion, Key: "x", PeerKey: "a", Nonce: make([]byte, nonceLen), Auth: shared != "",
			PublicKey: signer.public[:]})
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
