// SPDX-License-Identifier: MIT

package endtest

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core/fabric"
)

// Loopback is a transport over TCP sockets without options.
type Loopback struct{}

// Listen listens at an address, by default at a free port of the loopback interface.
func (Loopback) Listen(_ context.Context, at fabric.Addr) (net.Listener, error) {
	if at == "" {
		at = "127.0.0.1:0"
	}
	return net.Listen("tcp", string(at))
}

// Dial connects to a listener.
func (Loopback) Dial(ctx context.Context, to fabric.Addr) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", string(to))
}

// Prelude exchanges nothing.
func (Loopback) Prelude(net.Conn, bool) (any, error) { return nil, nil }

// Addr returns the address as text.
func (Loopback) Addr(a net.Addr) fabric.Addr { return fabric.Addr(a.String()) }

// A Log collects log output.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// WaitFor waits for a text in the log. It fails the test if the text does not appear within 30 s.
func (l *Log) WaitFor(tb testing.TB, text string) {
	tb.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		s := l.b.String()
		l.mu.Unlock()
		if strings.Contains(s, text) {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("the log does not say %q:\n%s", text, s)
		}
	}
}
