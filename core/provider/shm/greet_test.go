// SPDX-License-Identifier: MIT

package shm

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/memfd"
	"mori/core/internal/sys/sock"
	"mori/core/provider/internal/grant"
	"mori/core/provider/shm/internal/ring"
)

func goodHello() *hello {
	return &hello{minVersion: minVersion, maxVersion: maxVersion, ringEntries: ring.Entries, proofAddr: 4096, proof: [16]byte{1}}
}

func TestHelloRoundTrip(t *testing.T) {
	h := goodHello()
	got, err := parseHello(h.encode())
	if err != nil || got != *h {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestHelloRefuses(t *testing.T) {
	newer, other := goodHello(), goodHello()
	newer.minVersion, newer.maxVersion = maxVersion+1, maxVersion+2
	other.ringEntries = 3
	for name, b := range map[string][]byte{
		"nothing":      nil,
		"short":        goodHello().encode()[1:],
		"other magic":  append([]byte("GET / HT"), goodHello().encode()[8:]...),
		"newer":        newer.encode(),
		"another ring": other.encode(),
	} {
		if _, err := parseHello(b); !errors.Is(err, fabric.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzHello(f *testing.F) {
	f.Add(goodHello().encode())
	f.Add([]byte("morishm\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h hello
		var err error
		decodetest.Bounded(t, len(b), func() { h, err = parseHello(b) })
		if err == nil && !bytes.Equal(h.encode(), b) {
			t.Fatalf("%x was taken for %x", b, h.encode())
		}
	})
}

// FuzzSite checks that an accepted site encodes to the same bytes again and does not wrap around
// the address space.
func FuzzSite(f *testing.F) {
	f.Add(site{4096, 8192, allRights}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		var s site
		var err error
		decodetest.Bounded(t, len(b), func() { s, err = parseSite(b) })
		if err == nil && (!bytes.Equal(s.encode(), b) || s.base+s.size < s.base) {
			t.Fatalf("%x was taken for %+v", b, s)
		}
	})
}

// FuzzFrames passes frames of any kind and body to a data path. It answers or refuses them, and
// still works afterwards.
func FuzzFrames(f *testing.F) {
	f.Add(grant.FrameRequest, askBody(1, regionKey(1)))
	f.Add(grant.FrameGrant, grantBody(1, site{4096, 4096, allRights}))
	f.Add(grant.FrameRefuse, refuseBody(1, fabric.ErrNoKey))
	f.Add(grant.FrameReturn, ticketBody(1))
	f.Add(frameWake, []byte(nil))
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		a, b := newPair(t, wayCMA)
		grantRegion(t, b, 1, 4096, allRights)
		local, _ := memory(t, 64)
		a.path.RMA(1, rmaOp(fabric.OpWrite, local, 0), regionKey(1))
		decodetest.Bounded(t, len(body), func() {
			if err := b.path.Frame(kind, body); err != nil {
				b.Fail(err)
			}
			_ = a.wait(t, 1)
		})
	})
}

func TestReachWithinThisProcess(t *testing.T) {
	a, b := greetPair(t, &Options{Log: quiet})
	for _, g := range []*greeting{a, b} {
		if g.reach.way != wayMemmove || g.peer.PID != os.Getpid() {
			t.Errorf("%+v", g.reach)
		}
		g.Release()
		g.Release()
	}
}

func TestReachIsRefusedWithAReason(t *testing.T) {
	proof, _ := memory(t, 4096)
	copy(proof[ring.Proof:], "0123456789abcdef")
	h := *goodHello()
	h.proofAddr = sys.AddrOf(proof) + ring.Proof
	copy(h.proof[:], proof[ring.Proof:])
	me := sock.Cred{PID: os.Getpid(), UID: uint32(os.Getuid())}
	stranger := me
	stranger.UID++
	liar := h
	liar.proof[3]++
	for name, tt := range map[string]struct {
		cred sock.Cred
		h    hello
		opts Options
		want string
	}{
		"forced":                {me, h, Options{ForceStream: true}, "requested"},
		"another pid namespace": {sock.Cred{}, h, Options{}, "PID namespace"},
		"not permitted":         {me, h, Options{refuse: syscall.EPERM}, "operation not permitted"},
		"another user":          {stranger, h, Options{refuse: syscall.EPERM}, "belongs to user"},
		"no such call":          {me, h, Options{refuse: syscall.ENOSYS}, "function not implemented"},
		"another process":       {me, liar, Options{}, "another process uses"},
		"nothing there":         {me, *goodHello(), Options{}, "bad address"},
	} {
		r := findReach(tt.cred, tt.h, &tt.opts)
		if r.way != wayStream || !strings.Contains(r.reason, tt.want) {
			t.Errorf("%s: %v %q, want %q", name, r.way, r.reason, tt.want)
		}
	}
	if r := findReach(me, h, &Options{}); r.way != wayMemmove {
		t.Errorf("the honest case: %+v", r)
	}
}

// openSockets returns a client and the accepted socket of a new listener.
func openSockets(t *testing.T) (client, server *net.UnixConn) {
	t.Helper()
	l, err := transport{opts: &Options{}}.Listen(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c.(*net.UnixConn), s.(*net.UnixConn)
}

func TestGreetRefusesBadPeers(t *testing.T) {
	unsealed := func(size int64) int {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		if err := unix.Ftruncate(fd, size); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	short, err := memfd.New("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.CloseFD(short)
	fd, err := memfd.New("test", ring.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.CloseFD(fd)
	for name, tt := range map[string]struct {
		b    []byte
		fd   int
		want error
	}{
		"no ring":              {goodHello().encode(), -1, fabric.ErrProtocol},
		"garbage":              {bytes.Repeat([]byte("x"), 500), -1, fabric.ErrProtocol},
		"truncated":            {goodHello().encode()[:7], -1, nil},
		"a ring that shrinks":  {goodHello().encode(), unsealed(ring.Bytes), syscall.EINVAL},
		"a ring too small":     {goodHello().encode(), short, syscall.EINVAL},
		"not a ring at all":    {goodHello().encode(), int(os.Stdin.Fd()), syscall.EINVAL},
		"garbage with a ring":  {bytes.Repeat([]byte("x"), 500), short, fabric.ErrProtocol},
		"nothing, then closed": {nil, -1, nil},
		"no last byte":         {goodHello().encode(), fd, io.EOF},
		"another last byte":    {append(goodHello().encode(), 2), fd, fabric.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := openSockets(t)
			if tt.fd >= 0 {
				_, _, err = client.WriteMsgUnix(tt.b, sock.Rights(tt.fd), nil)
			} else {
				_, err = client.Write(tt.b)
			}
			if err != nil {
				t.Fatal(err)
			}
			client.CloseWrite()
			if err := server.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := greet(server, &Options{Log: quiet}); err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestGreetLeavesTheBytesBehindTheHello(t *testing.T) {
	client, server := openSockets(t)
	fd, err := memfd.New("test", ring.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.CloseFD(fd)
	if _, _, err := client.WriteMsgUnix(append(append(goodHello().encode(), reaches), "frames"...), sock.Rights(fd), nil); err != nil {
		t.Fatal(err)
	}
	g, err := greet(server, &Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Release()
	if g.reach.way != wayStream || g.messages {
		t.Errorf("an address that was never mapped: %+v", g)
	}
	rest := make([]byte, 6)
	if _, err := server.Read(rest); err != nil || string(rest) != "frames" {
		t.Fatalf("left %q: %v", rest, err)
	}
}
