// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// An altering relay passes connections on and inverts one bit of its first one: of the byte at
// offset at of what the dialing side sends, or of what it receives.
type altering struct {
	addr    string
	altered atomic.Int32
}

func alter(t *testing.T, to string, answers bool, at int) *altering {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	a := &altering{addr: lis.Addr().String()}
	var first atomic.Bool
	first.Store(true)
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
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				return
			}
			alters := first.Swap(false)
			go pass(out, c, alters && !answers)
			go pass(c, out, alters && answers)
		}
	}()
	return a
}

// Whichever byte of the control plane's handshake is altered, another attempt succeeds. Only a welcome
// that claims to be longer than it is has the client wait until its limit.
func TestAGreetingThatIsAlteredIsSentAgain(t *testing.T) {
	a, b := newSideWithin(t, "a", 200*time.Millisecond), newSide(t, "b", 64, BackendTCP, nil)
	for _, answers := range []bool{false, true} {
		late := 0
		for at := 0; ; at++ {
			if at > controlHeader && at%5 != 0 {
				continue
			}
			r := alter(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Desc().Port)), answers, at)
			d := a.Desc()
			_, port, _ := net.SplitHostPort(r.addr)
			d.Port, _ = strconv.Atoi(port)
			p := newPeer(b.Engine, d)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			_, err := p.ctl.greet(ctx)
			if answers && isTimeout(err) {
				late++
			} else if err != nil {
				t.Errorf("byte %d, of an answer %v: %v", at, answers, err)
			}
			cancel()
			p.close(ErrClosed)
			if r.altered.Load() == 0 {
				break // all bytes were
			}
		}
		if late > 1 {
			t.Errorf("%d greetings were not answered in time", late)
		}
	}
}
