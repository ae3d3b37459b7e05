// SPDX-License-Identifier: MIT

package shm

import (
	"bytes"
	"context"
	"net"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"mori/core/decode/decodetest"
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/memfd"
	"mori/core/internal/sys/sock"
	"mori/core/provider/shm/internal/ring"
)

// FuzzListener sends any bytes to a live listener, with and without a valid ring, and after a valid
// handshake. The connection ends, and the next client is served.
func FuzzListener(f *testing.F) {
	n, err := openNode(f.Context(), Options{})
	if err != nil {
		f.Fatal(err)
	}
	lis, err := n.fab.Listen(f.Context(), n.in)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = lis.Close(); _ = n.close() })
	fd, err := memfd.New("test", ring.Bytes)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = sys.CloseFD(fd) })

	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false, false)
	f.Add(goodHello().encode(), true, false)
	f.Add(goodHello().encode()[:9], true, false)
	f.Add([]byte("mori-hi1"), true, true)
	f.Fuzz(func(t *testing.T, b []byte, withRing, greeted bool) {
		conn, err := net.Dial("unix", string(lis.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client := conn.(*net.UnixConn)
		if greeted {
			b = append(append(goodHello().encode(), reachesNot), b...)
		}
		_ = client.SetReadDeadline(time.Now().Add(10 * time.Second))
		decodetest.Bounded(t, len(b), func() {
			if len(b) > 0 && withRing {
				_, _, _ = client.WriteMsgUnix(b, sock.Rights(fd), nil) // the listener may have closed already
			} else {
				_, _ = client.Write(b)
			}
			_ = client.CloseWrite()
			rest := make([]byte, 4096)
			for err == nil {
				_, err = client.Read(rest)
			}
		})
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Fatal("the listener neither answers nor hangs up")
		}
	})
}

func TestListenerServesAfterGarbage(t *testing.T) {
	n, err := openNode(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	lis, err := n.fab.Listen(t.Context(), n.in)
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	for i := range 100 {
		conn, err := net.Dial("unix", string(lis.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(goodHello().encode()[:i%40])
		if i%2 == 0 {
			conn.Close()
		} else {
			defer conn.Close()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := openNode(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	accepted := make(chan error, 1)
	go func() {
		req, err := lis.Accept(ctx)
		if err == nil {
			err = n.ep.(fabric.Connector).Accept(ctx, req, nil)
		}
		accepted <- err
	}()
	if _, err := c.ep.(fabric.Connector).Connect(ctx, lis.Addr(), nil); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
}

// Refused requests release their descriptors and mappings immediately, without a garbage
// collection.
func TestRefusedRequestsLeaveNothing(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	n, err := openNode(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	lis, err := n.fab.Listen(t.Context(), n.in)
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	refuse := func(times int) {
		for range times {
			conn, err := net.Dial("unix", string(lis.Addr()))
			if err != nil {
				t.Fatal(err)
			}
			client := conn.(*net.UnixConn)
			g, err := greet(client, &Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Write(streamHello()); err != nil {
				t.Fatal(err)
			}
			req, err := lis.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := req.Reject(nil); err != nil {
				t.Fatal(err)
			}
			g.Release()
			_ = conn.Close()
		}
	}
	refuse(1)
	before := rings(t)
	refuse(30)
	if after := rings(t); after > before {
		t.Errorf("%d rings are mapped after 30 requests were refused, %d before", after, before)
	}
}

// streamHello returns the hello of the stream's own handshake, for a single socket.
func streamHello() []byte {
	b := append([]byte("mori-hi1"), 4, 4, 0, 1)
	b = append(b, make([]byte, 16)...) // nonce
	return append(b, 0, 0, 0, 8, 0, 0)
}

// rings returns how many rings this process has mapped.
func rings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(maps, []byte("mori-shm-ring"))
}
