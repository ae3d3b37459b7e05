// SPDX-License-Identifier: MIT

package local

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/sock"
)

func ok(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func TestGateTellsOnceAllHaveLeft(t *testing.T) {
	var g Gate
	for range 2 {
		if !g.Enter() {
			t.Fatal("an open gate is shut")
		}
	}
	empty := g.Shut()
	if g.Enter() {
		t.Error("a shut gate is open")
	}
	g.Leave()
	select {
	case <-empty:
		t.Error("one is inside")
	default:
	}
	g.Leave()
	<-empty
	var unused Gate
	<-unused.Shut()
}

func TestGateUnderLoad(t *testing.T) {
	var g Gate
	var inside sync.WaitGroup
	var count [4]int
	for i := range count {
		inside.Add(1)
		go func() {
			defer inside.Done()
			for g.Enter() {
				count[i]++
				g.Leave()
			}
		}()
	}
	time.Sleep(time.Millisecond)
	<-g.Shut()
	inside.Wait()
}

// newFence makes a fence in memory of its own.
func newFence(t *testing.T) Fence {
	t.Helper()
	b, err := sys.Alloc(4096)
	ok(t, err)
	t.Cleanup(func() { ok(t, sys.Free(b)) })
	return Fence{Closed: sys.AddrOf(b), Copying: sys.AddrOf(b) + 64}
}

func TestFence(t *testing.T) {
	f := newFence(t)
	if !f.Enter() || f.Empty() || f.IsClosed() {
		t.Fatal("an open fence holds somebody off, or counts nobody")
	}
	f.Close()
	if f.Enter() || !f.IsClosed() {
		t.Error("a closed fence lets somebody in")
	}
	if f.Await(&Peer{}, time.Millisecond) {
		t.Error("a copy under way was not waited for")
	}
	go func() {
		time.Sleep(time.Millisecond)
		f.Leave()
	}()
	if !f.Await(&Peer{}, 30*time.Second) {
		t.Error("nobody copies any more")
	}
}

// sockets returns a connected pair of sockets, made with the names that Sockets chooses.
func sockets(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	l, err := Sockets{}.Listen(ctx, "")
	ok(t, err)
	at := Sockets{}.Addr(l.Addr())
	if !strings.HasPrefix(string(at), "@mori-") || CheckAddr(at) != nil {
		t.Errorf("a random name is %q", at)
	}
	dialed, err := Sockets{}.Dial(ctx, at)
	ok(t, err)
	accepted, err := l.Accept()
	ok(t, errors.Join(err, l.Close()))
	t.Cleanup(func() { _, _ = dialed.Close(), accepted.Close() })
	return dialed.(*net.UnixConn), accepted.(*net.UnixConn)
}

func TestNamesThatAreNone(t *testing.T) {
	for _, at := range []fabric.Addr{"", "@", "name", fabric.Addr("@" + strings.Repeat("x", 107))} {
		if err := CheckAddr(at); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("%q: %v", at, err)
		}
		if _, err := (Sockets{}).Dial(t.Context(), at); !errors.Is(err, fabric.ErrInvalid) {
			t.Errorf("dial %q: %v", at, err)
		}
	}
}

// Both ends see the same memory, and the bytes after the handshake stay in the socket.
func TestHandshakes(t *testing.T) {
	a, b := sockets(t)
	ours, err := SendMemory(a, "test", 4096, func([]byte) ([]byte, error) { return []byte("hellorest"), nil })
	ok(t, err)
	var heard string
	theirs, err := ReceiveMemory(b, 5, 4096, func(handshake []byte) error {
		heard = string(handshake)
		return nil
	})
	ok(t, err)
	ours[7] = 9
	if theirs[7] != 9 || heard != "hello" {
		t.Errorf("heard %q, and memory has %d", heard, theirs[7])
	}
	rest := make([]byte, 4)
	if _, err := io.ReadFull(b, rest); err != nil || string(rest) != "rest" {
		t.Errorf("left %q, %v", rest, err)
	}
	ok(t, errors.Join(sys.Free(ours), sys.Free(theirs)))
}

func TestInvalidHandshakes(t *testing.T) {
	refused := errors.New("refused")
	parse := func(b []byte) error {
		if string(b) != "hello" {
			return refused
		}
		return nil
	}
	for name, c := range map[string]struct {
		says string
		mem  int // bytes, 0 for none
		want error
	}{
		"without memory":   {"hello", 0, fabric.ErrProtocol},
		"cut off":          {"hel", 0, io.EOF},
		"of others":        {"hullo", 4096, refused},
		"with less memory": {"hello", 100, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := sockets(t)
			if c.mem > 0 {
				mem, err := SendMemory(a, "test", c.mem, func([]byte) ([]byte, error) { return []byte(c.says), nil })
				ok(t, err)
				ok(t, sys.Free(mem))
			} else {
				_, err := a.Write([]byte(c.says))
				ok(t, err)
			}
			ok(t, a.CloseWrite())
			if _, err := ReceiveMemory(b, 5, 4096, parse); err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// A peer that is this process is never reported dead. The end of another process is detected even
// if a third process holds its socket.
func TestPeerDies(t *testing.T) {
	a, _ := sockets(t)
	self, err := OpenPeer(a)
	ok(t, err)
	if self.PID != os.Getpid() || self.Dead() || self.AwaitEnd() {
		t.Errorf("this process: %+v", self)
	}
	self.Close()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	p := &Peer{Cred: sock.Cred{PID: cmd.Process.Pid}, socket: self.socket}
	p.follow()
	defer p.Close()
	if p.pidfd == nil {
		t.Skip("this kernel has no pidfds")
	}
	if p.Dead() {
		t.Error("it lives")
	}
	ended := make(chan bool, 1)
	go func() { ended <- p.AwaitEnd() }()
	ok(t, cmd.Process.Kill())
	if !<-ended || !p.Dead() {
		t.Error("its death is not seen, or its socket is thought closed")
	}
	_ = cmd.Wait()
}

func TestOpFault(t *testing.T) {
	err := OpFault(fabric.ErrRange, "%d bytes", 7)
	if !errors.Is(err, fabric.ErrRange) || err.Error() != "7 bytes" {
		t.Error(err)
	}
}
