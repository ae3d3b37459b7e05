// SPDX-License-Identifier: MIT

package control

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"mori/io/internal/message"
)

// An altering relay forwards connections and inverts one bit of the first one. The bit is in the
// byte at offset at of what the dialing side sends, or of what it receives.
type altering struct {
	port    int
	altered atomic.Int32
}

func alter(t *testing.T, to string, answers bool, at int) *altering {
	t.Helper()
	a := &altering{}
	pass := func(to, from net.Conn, alters bool) {
		defer func() { _ = to.Close() }()
		buf, seen := make([]byte, 1<<16), 0
		for {
			n, err := from.Read(buf)
			if alters && seen <= at && at < seen+n {
				buf[at-seen] ^= 4
				a.altered.Add(1)
			}
			seen += n
			if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	a.port = listen(t, func(i int, c net.Conn) {
		out, err := net.Dial("tcp", to)
		if err != nil {
			_ = c.Close()
			return
		}
		go pass(out, c, i == 0 && !answers)
		go pass(c, out, i == 0 && answers)
	})
	return a
}

// Whichever byte of the handshake is altered, another attempt succeeds. Only a Welcome that claims
// to be longer than it is makes the client wait until its limit.
func TestAGreetingThatIsAlteredIsSentAgain(t *testing.T) {
	a := newEngineWithin(t, "a", 200*time.Millisecond)
	for _, answers := range []bool{false, true} {
		late := 0
		for at := 0; ; at++ {
			if at > message.HeaderBytes && at%5 != 0 {
				continue
			}
			r := alter(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port())), answers, at)
			d := a.desc
			d.Port = r.port
			c := newClient(t, d, "")
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			_, err := c.Greet(ctx)
			if answers && isTimeout(err) {
				late++
			} else if err != nil {
				t.Errorf("byte %d, of an answer %v: %v", at, answers, err)
			}
			cancel()
			c.Close()
			if r.altered.Load() == 0 {
				break // all bytes have been altered once
			}
		}
		if late > 1 {
			t.Errorf("%d greetings were not answered in time", late)
		}
	}
}
