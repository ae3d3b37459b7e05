// SPDX-License-Identifier: MIT

package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"mori/core/logging/logtest"
	"mori/io/internal/control/controltest"
	"mori/io/internal/descriptor"
	"mori/io/internal/identity"
	"mori/io/internal/message"
)

func TestMain(m *testing.M) {
	logtest.Quiet()
	os.Exit(m.Run())
}

// A tableHost is a Host that answers from maps.
type tableHost struct {
	mu      sync.Mutex
	known   map[string]bool
	refused map[string]error // by key
	regions map[descriptor.RegionKey]uint64
	open    map[string]bool // data connections, by token
	tags    []message.Tag
}

func (h *tableHost) Admits(who identity.ID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused[who.Key]
}

func (h *tableHost) Knows(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[key]
}

func (h *tableHost) Offer() ([]message.Endpoint, bool) {
	return []message.Endpoint{{Name: "tcp", Addr: "127.0.0.1:9"}, {Name: "shm", Addr: "x"}}, true
}

func (h *tableHost) RegionSize(key descriptor.RegionKey) (size uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	size, ok = h.regions[key]
	return size, ok
}

func (h *tableHost) Drop(token []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := h.open[string(token)]
	delete(h.open, string(token))
	return found
}

func (h *tableHost) TakeTags(_ identity.ID, all []message.Tag) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tags = append(h.tags, all...)
	return len(all)
}

// An engine is a server on the loopback address and on the local socket, with its host.
type engine struct {
	*Server
	host *tableHost
	desc descriptor.Engine
}

func newSelf(t testing.TB, key string, secret identity.Secret) *Self {
	t.Helper()
	signer, err := identity.NewSigner()
	if err != nil {
		t.Fatal(err)
	}
	nonce, err := message.NewNonce()
	if err != nil {
		t.Fatal(err)
	}
	incarnation := uint64(1)
	for _, b := range nonce[:7] {
		incarnation = incarnation<<8 | uint64(b)
	}
	return &Self{Key: key, NodeID: "node", Incarnation: incarnation, Secret: secret, Signer: signer, Log: slog.Default()}
}

func newEngine(t testing.TB, key string, secret identity.Secret) *engine {
	t.Helper()
	return serve(t, newSelf(t, key, secret))
}

func serve(t testing.TB, self *Self) *engine {
	t.Helper()
	h := &tableHost{known: map[string]bool{}, refused: map[string]error{}, open: map[string]bool{},
		regions: map[descriptor.RegionKey]uint64{{ID: 1}: 64}}
	e := &engine{Server: NewServer(self, h), host: h}
	t.Cleanup(e.Close)
	if err := errors.Join(e.ListenTCP("", 0), e.ListenLocal()); err != nil {
		t.Fatal(err)
	}
	e.desc = descriptor.Engine{Key: self.Key, Port: e.Port(), Incarnation: self.Incarnation, PublicKey: self.Signer.Public}
	return e
}

// newClient returns a client of another engine, which shares e's secret.
func newClient(t testing.TB, to descriptor.Engine, secret identity.Secret) *Client {
	t.Helper()
	c := NewClient(newSelf(t, "client", secret), to, Near{})
	t.Cleanup(c.Close)
	return c
}

func newCaller(t testing.TB, key string, incarnation uint64, to *engine) *controltest.Caller {
	t.Helper()
	return controltest.NewCaller(t, key, incarnation, to.self.Key, to.self.Secret)
}

// greets checks that e still completes handshakes.
func greets(t testing.TB, e *engine) {
	t.Helper()
	if w, err := newClient(t, e.desc, e.self.Secret).Greet(deadline(t)); err != nil || len(w.Endpoints) != 2 {
		t.Errorf("a client greets: %+v, %v", w, err)
	}
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func dial(t testing.TB, e *engine) net.Conn {
	t.Helper()
	return dialFrom(t, e, "127.0.0.1")
}

// dialFrom dials from an address of this host, or over the local socket if that is empty.
func dialFrom(t testing.TB, e *engine, ip string) net.Conn {
	t.Helper()
	d, network, to := net.Dialer{}, "unix", localAddr(e.self.Incarnation)
	if ip != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(ip)}
		network, to = "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(e.Port()))
	}
	c, err := d.Dial(network, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// listen accepts connections in a goroutine and passes each to serve, with its number.
func listen(t testing.TB, serve func(i int, c net.Conn)) (port int) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for i := 0; ; i++ {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			serve(i, c)
		}
	}()
	return lis.Addr().(*net.TCPAddr).Port
}

// until polls until a condition that other goroutines bring about holds.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

func isReset(err error) bool {
	op, ok := err.(*net.OpError)
	return ok && !op.Timeout()
}

// newEngineWithin is newEngine with another handshake limit.
func newEngineWithin(t testing.TB, key string, limit time.Duration) *engine {
	t.Helper()
	self := newSelf(t, key, "")
	self.Handshake = limit
	return serve(t, self)
}
