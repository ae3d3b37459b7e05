// SPDX-License-Identifier: MIT

package admission

import (
	"context"
	"net"
	"testing"
	"time"
)

type conn struct {
	net.Conn
	from net.Addr
}

func (c *conn) RemoteAddr() net.Addr { return c.from }

func from(ip string) net.Conn {
	return &conn{from: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}
}

func TestTheOldestOfTheSameAddressLeavesFirst(t *testing.T) {
	s := NewSet(4, 2)
	other, first, second := from("10.0.0.1"), from("10.0.0.2"), from("10.0.0.2")
	for _, c := range []net.Conn{other, first, second} {
		if gone := s.Add(c); gone != nil {
			t.Fatalf("%v left for %v", gone, c)
		}
	}
	if gone := s.Add(from("10.0.0.2")); gone != first {
		t.Errorf("%v left, want the first of the address", gone)
	}
	s.Touch(second)
	if gone := s.Add(from("::ffff:10.0.0.2")); gone == second || gone == other {
		t.Errorf("%v left, which was used last or is of another address", gone)
	}
	s.Add(from("10.0.0.3"))
	if gone := s.Add(from("10.0.0.4")); gone != other || s.Len() != 4 {
		t.Errorf("%v of %d left, want the oldest of all", gone, s.Len())
	}
	if s.Remove(other) || !s.Remove(second) || s.Len() != 3 || len(s.All()) != 3 {
		t.Errorf("%d left", s.Len())
	}
}

func TestAddressesOfOneNetworkCountAsOne(t *testing.T) {
	s := NewSet(8, 1)
	a, b := from("2001:db8::1"), &conn{from: &net.UnixAddr{Net: "unix"}}
	s.Add(a)
	s.Add(b)
	if gone := s.Add(from("2001:db8::2:3")); gone != a {
		t.Errorf("%v left, want the one of the same network of 64 bits", gone)
	}
	if gone := s.Add(&conn{from: nil}); gone != b {
		t.Errorf("%v left, want the unix socket", gone)
	}
	if gone := s.Add(from("2001:db8:1::1")); gone != nil {
		t.Errorf("%v left for one of another network", gone)
	}
}

func TestBackoffEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	var b Backoff
	n := 0
	for b.Wait(ctx) {
		n++
	}
	if n < 1 || n > 6 {
		t.Errorf("%d attempts in 30 ms, want 1 to 6", n)
	}
}
