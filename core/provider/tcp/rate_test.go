// SPDX-License-Identifier: MIT

package tcp_test

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/provider/tcp"
)

func TestTheKernelMeasuresConnections(t *testing.T) {
	a := newAuthority(t)
	for name, cfg := range map[string]*tls.Config{"plain": nil, "under TLS": a.config(t, a)} {
		t.Run(name, func(t *testing.T) {
			tr := tcp.SocketsOf(tcp.Options{TLS: cfg})
			ln := must[net.Listener](t)(tr.Listen(testContext(t), ""))
			accepted := make(chan net.Conn, 1)
			go func() {
				if c, err := ln.Accept(); err == nil {
					_, _ = io.Copy(io.Discard, c)
					accepted <- c
				}
			}()
			conn := must[net.Conn](t)(tr.Dial(testContext(t), fabric.Addr(ln.Addr().String())))
			if r := tcp.Rate(conn); r != 0 {
				t.Errorf("%g bytes/s before the first byte", r)
			}
			must[int](t)(conn.Write(make([]byte, 1<<20)))
			for end := time.Now().Add(deadline); tcp.Rate(conn) == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("nothing is known of a connection that has carried 1 MiB")
				}
			}
			check(t, conn.Close())
			check(t, (<-accepted).Close())
			check(t, ln.Close())
			if r := tcp.Rate(conn); cfg == nil && r != 0 { // under TLS, the TCP connection closes later
				t.Errorf("%g bytes/s of a closed connection", r)
			}
		})
	}
	one, other := net.Pipe()
	defer one.Close()
	defer other.Close()
	if r := tcp.Rate(one); r != 0 {
		t.Errorf("%g bytes/s of what is no socket", r)
	}
}
