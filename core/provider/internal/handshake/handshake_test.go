// SPDX-License-Identifier: MIT

package handshake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/endtest"
	"mori/core/provider/internal/frame"
)

// TestConnectToAPeerThatCloses writes to a socket that the peer closed, as a listener that closes
// does with requests that it has not read. The caller sees a reset connection, whether it was
// writing or reading.
func TestConnectToAPeerThatCloses(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[0]), "socket")
	defer file.Close()
	if err := syscall.Close(fds[1]); err != nil {
		t.Fatal(err)
	}
	_, wrote := file.Write([]byte("hello"))
	if !errors.Is(wrote, syscall.EPIPE) {
		t.Fatalf("write to a closed socket: %v, want EPIPE", wrote)
	}
	for _, cause := range []error{wrote, io.EOF} {
		err := Error(context.Background(), "there", fmt.Errorf("send handshake: %w", cause))
		if !errors.Is(err, fabric.ErrConnReset) {
			t.Errorf("%v ends the handshake: %v (%v), want %v", cause, err, fabric.ErrnoOf(err), fabric.ErrConnReset)
		}
	}
}

// TestHandshakesThatBreak sends broken handshakes to a listener. It drops the socket, logs that
// once, and continues.
func TestHandshakesThatBreak(t *testing.T) {
	h := good()
	whole := h.Append(nil)
	changed := func(i int, b byte) []byte {
		out := h.Append(nil)
		out[i] = b
		return out
	}
	for _, c := range []struct {
		name string
		b    []byte
		log  string
	}{
		{"nothing", nil, "handshake ends after 0 of"},
		{"half of it", whole[:20], "handshake ends after 20 of"},
		{"without its private data", whole[:frame.HandshakeLen], "handshake ends after 0 of 2 private"},
		{"another protocol", []byte("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), "handshake magic"},
		{"no versions", changed(8, 9), fmt.Sprintf("handshake with versions 9 to %d", frame.Version)},
		{"no links", changed(11, 0), "handshake for link 0 of 0"},
		{"a link too far", changed(10, 1), "handshake for link 1 of 1"},
		{"too many links", changed(11, 200), "of 200"},
		{"no ops", changed(31, 0), "handshake with 0 ops"},
		{"much private data", changed(32, 0xff), "private bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 0)
			conn, err := net.Dial("tcp", string(r.ln.Addr()))
			r.must(err)
			_, err = conn.Write(c.b)
			r.must(err)
			_ = conn.(*net.TCPConn).CloseWrite() // the listener may have closed already
			r.log.WaitFor(t, c.log)
			r.log.WaitFor(t, conn.LocalAddr().String())
			r.must(conn.Close())
			r.connect() // the listener continues
		})
	}
}

func TestVersionsThatDiffer(t *testing.T) {
	r := newRig(t, 0)
	conn, err := net.Dial("tcp", string(r.ln.Addr()))
	r.must(err)
	defer conn.Close()
	h := good()
	h.Min, h.Max = frame.Version+1, 5
	_, err = conn.Write(h.Append(nil))
	r.must(err)
	a, err := frame.ReadHandshakeReply(conn)
	if err != nil || a.Verdict != frame.VersionMismatch {
		t.Fatalf("answer %+v, %v", a, err)
	}
	if err := refusal(&a, "x"); !errors.Is(err, fabric.ErrProtocol) {
		t.Errorf("refusal: %v", err)
	}
}

// TestALinkComesOnce joins a socket to an endpoint that already has this link.
func TestALinkComesOnce(t *testing.T) {
	r := newRig(t, 0)
	h := good()
	h.Links, h.Private = 2, nil
	for range 2 {
		conn, err := net.Dial("tcp", string(r.ln.Addr()))
		r.must(err)
		defer conn.Close()
		_, err = conn.Write(h.Append(nil))
		r.must(err)
	}
	r.log.WaitFor(t, "expected once each")
	r.connect()
}

// TestSilentSocketsKeepNobodyOut opens more silent sockets than may be half open. The listener
// closes the oldest for the newer ones, so an endpoint connects at once.
func TestSilentSocketsKeepNobodyOut(t *testing.T) {
	r := newRig(t, 0)
	var oldest net.Conn
	for i := range maxHalfOpenHost + 8 {
		conn, err := net.Dial("tcp", string(r.ln.Addr()))
		r.must(err)
		defer conn.Close()
		if i == 0 {
			oldest = conn
		}
	}
	r.connect()
	r.must(oldest.SetReadDeadline(time.Now().Add(testDeadline)))
	if n, err := oldest.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest silent socket reads %d bytes, %v; want it closed", n, err)
	}
	if n := r.ln.halfOpen.Len(); n > maxHalfOpenHost {
		t.Errorf("%d sockets are half open, want at most %d", n, maxHalfOpenHost)
	}
}

// TestUnfinishedHandshakesEndAtTheirLimit leaves sockets without a handshake, with half of one, and
// without the other sockets of their endpoint. The listener closes all of them.
func TestUnfinishedHandshakesEndAtTheirLimit(t *testing.T) {
	r := newRig(t, 100*time.Millisecond)
	whole, alone := good(), good()
	alone.Links, alone.Private = 2, nil
	for name, sent := range map[string][]byte{"silent": nil, "half": whole.Append(nil)[:frame.HandshakeLen/2], "alone": alone.Append(nil)} {
		conn, err := net.Dial("tcp", string(r.ln.Addr()))
		r.must(err)
		defer conn.Close()
		_, err = conn.Write(sent)
		r.must(err)
		r.must(conn.SetReadDeadline(time.Now().Add(testDeadline)))
		if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the socket is open after %v", name, testDeadline)
		}
	}
	if n := r.ln.halfOpen.Len(); n != 0 {
		t.Errorf("%d sockets are half open, want 0", n)
	}
}

// TestRequestsThatNobodyTakesAreRefused fills the listener's queue.
func TestRequestsThatNobodyTakesAreRefused(t *testing.T) {
	r := newRig(t, 0)
	var last net.Conn
	for i := range maxRequests + 1 {
		conn, err := net.Dial("tcp", string(r.ln.Addr()))
		r.must(err)
		defer conn.Close()
		h := good()
		h.Nonce[1] = byte(i)
		_, err = conn.Write(h.Append(nil))
		r.must(err)
		last = conn
		for end := time.Now().Add(testDeadline); i < maxRequests && len(r.ln.requests) <= i; time.Sleep(100 * time.Microsecond) {
			if time.Now().After(end) {
				t.Fatalf("request %d does not come", i)
			}
		}
	}
	r.must(last.SetDeadline(time.Now().Add(testDeadline)))
	a, err := frame.ReadHandshakeReply(last)
	if err != nil || a.Verdict != frame.Busy {
		t.Fatalf("answer %+v, %v", a, err)
	}
	if err := refusal(&a, "x"); !errors.Is(err, fabric.ErrConnRefused) {
		t.Errorf("refusal: %v", err)
	}
	// The caller of Dial gets an error that says that another attempt may succeed.
	ctx, cancel := Bound(r.ctx, nil, nil)
	defer cancel()
	_, _, err = Dial(ctx, endtest.Loopback{}, r.ln.Addr(), 1, frame.Handshake{Tx: 8})
	if err = Error(ctx, r.ln.Addr(), err); !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("connect: %v, want %v", err, fabric.ErrBusy)
	}
}
