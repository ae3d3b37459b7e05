// SPDX-License-Identifier: MIT

package conn

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
	"mori/core/provider/internal/frame"
)

func goodHello() frame.Handshake {
	return frame.Handshake{Min: frame.Version, Max: frame.Version, Links: 1, Nonce: [16]byte{7}, Tx: 8, Private: []byte("hi")}
}

// TestConnectToAPeerThatCloses writes to a socket whose peer has closed it, which a listener that closes does with the
// requests that it has not read. The caller sees a connection that broke, whether it was writing or reading then.
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
		var ep *Endpoint
		err := ep.connectErr(context.Background(), "there", fmt.Errorf("send greeting: %w", cause))
		if !errors.Is(err, fabric.ErrConnReset) {
			t.Errorf("%v ends the handshake: %v (%v), want %v", cause, err, fabric.ErrnoOf(err), fabric.ErrConnReset)
		}
	}
}

// TestHandshakesThatBreak sends them to a listener, which drops the socket, says so once, and goes on.
func TestHandshakesThatBreak(t *testing.T) {
	h := goodHello()
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
			r := newRig(t, nil)
			conn, err := net.Dial("tcp", string(r.ln.Addr()))
			r.must(err)
			_, err = conn.Write(c.b)
			r.must(err)
			_ = conn.(*net.TCPConn).CloseWrite() // the listener may have closed already
			r.log.waitFor(t, c.log)
			r.log.waitFor(t, conn.LocalAddr().String())
			r.must(conn.Close())
			r.dial(1) // the listener goes on
		})
	}
}

func TestVersionsThatDoNotMeet(t *testing.T) {
	r := newRig(t, nil)
	conn, err := net.Dial("tcp", string(r.ln.Addr()))
	r.must(err)
	defer conn.Close()
	h := goodHello()
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

// TestALinkComesOnce joins a socket to an endpoint that has this link already.
func TestALinkComesOnce(t *testing.T) {
	r := newRig(t, nil)
	h := goodHello()
	h.Links, h.Private = 2, nil
	for range 2 {
		conn, err := net.Dial("tcp", string(r.ln.Addr()))
		r.must(err)
		defer conn.Close()
		_, err = conn.Write(h.Append(nil))
		r.must(err)
	}
	r.log.waitFor(t, "expected once each")
	r.dial(1)
}

// TestSilentSocketsKeepNobodyOut opens more silent sockets than may be half open. The oldest are closed for the newer ones, so an
// endpoint connects at once.
func TestSilentSocketsKeepNobodyOut(t *testing.T) {
	r := newRig(t, nil)
	var oldest net.Conn
	for i := range maxHalfOpenHost + 8 {
		conn, err := net.Dial("tcp", string(r.ln.Addr()))
		r.must(err)
		defer conn.Close()
		if i == 0 {
			oldest = conn
		}
	}
	r.dial(1)
	r.must(oldest.SetReadDeadline(time.Now().Add(testDeadline)))
	if n, err := oldest.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest silent socket reads %d bytes, %v; want it closed", n, err)
	}
	if n := r.ln.(*listener).halfOpen.Len(); n > maxHalfOpenHost {
		t.Errorf("%d sockets are half open, want at most %d", n, maxHalfOpenHost)
	}
}

// TestUnfinishedHandshakesEndAtTheirLimit leaves sockets without a hello, with half of one, and
// without the other sockets of their endpoint. The listener closes all of them.
func TestUnfinishedHandshakesEndAtTheirLimit(t *testing.T) {
	r := newRigOf(t, Config{Handshake: 100 * time.Millisecond})
	whole, alone := goodHello(), goodHello()
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
	if n := r.ln.(*listener).halfOpen.Len(); n != 0 {
		t.Errorf("%d sockets are half open, want 0", n)
	}
}

// TestRequestsThatNobodyTakesAreTurnedAway fills the listener's queue.
func TestRequestsThatNobodyTakesAreTurnedAway(t *testing.T) {
	r := newRig(t, nil)
	var last net.Conn
	for i := range maxRequests + 1 {
		conn, err := net.Dial("tcp", string(r.ln.Addr()))
		r.must(err)
		defer conn.Close()
		h := goodHello()
		h.Nonce[1] = byte(i)
		_, err = conn.Write(h.Append(nil))
		r.must(err)
		last = conn
		for end := time.Now().Add(testDeadline); i < maxRequests && len(r.ln.(*listener).requests) <= i; time.Sleep(100 * time.Microsecond) {
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
	// Who connects learns that another attempt may succeed.
	if _, err := r.ep.Connect(r.ctx, r.ln.Addr(), nil); !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("connect: %v, want %v", err, fabric.ErrBusy)
	}
}

// TestPeersThatAnswerWrong dials a plain listener that answers a hello by other bytes.
func TestPeersThatAnswerWrong(t *testing.T) {
	accept := frame.HandshakeReply{Version: frame.Version, Verdict: frame.Accepted, Tx: 8}
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, fabric.ErrConnReset},
		{"another protocol", []byte("220 mail.example.org ready and waiting for you\r\n"), fabric.ErrProtocol},
		{"half of it", accept.Append(nil)[:9], fabric.ErrConnReset},
		{"no verdict", (&frame.HandshakeReply{Version: frame.Version, Tx: 8}).Append(nil), fabric.ErrProtocol},
		{"another version", (&frame.HandshakeReply{Version: frame.Version + 1, Verdict: frame.Accepted, Tx: 8}).Append(nil), fabric.ErrProtocol},
		{"no ops", (&frame.HandshakeReply{Version: frame.Version, Verdict: frame.Accepted}).Append(nil), fabric.ErrProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			r.must(err)
			defer ln.Close()
			go func() {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = frame.ReadHandshake(conn)
				_, _ = conn.Write(c.b)
				_ = conn.Close()
			}()
			if _, err = r.ep.Connect(r.ctx, fabric.Addr(ln.Addr().String()), nil); !errors.Is(err, c.want) {
				t.Fatalf("connect: %v, want %v", err, c.want)
			}
			// The endpoint may try again.
			ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
			defer cancel()
			if _, err = r.ep.Connect(ctx, r.ln.Addr(), nil); !errors.Is(err, fabric.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("second connect: %v", err)
			}
		})
	}
}

// TestAttachThatFails lets the passive side's DataPath refuse: neither side is connected.
func TestAttachThatFails(t *testing.T) {
	r := newRig(t, func(*Endpoint, any) (DataPath, error) { return nil, fmt.Errorf("no way: %w", fabric.ErrPerm) })
	dialer := newRig(t, nil)
	got := make(chan error, 1)
	go func() {
		_, err := dialer.ep.Connect(dialer.ctx, r.ln.Addr(), nil)
		got <- err
	}()
	req, err := r.ln.Accept(r.ctx)
	r.must(err)
	if err := r.ep.Accept(r.ctx, req, nil); !errors.Is(err, fabric.ErrPerm) {
		t.Errorf("accept: %v", err)
	}
	if err := <-got; !errors.Is(err, fabric.ErrConnReset) {
		t.Errorf("connect: %v", err)
	}
}
