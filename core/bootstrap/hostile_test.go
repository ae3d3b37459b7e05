// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// joinAround joins size ranks while strangers do to rank 0's address what they will.
func joinAround(t *testing.T, size int, stranger func(ctx context.Context, addr string)) {
	t.Helper()
	id := loopbackID(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			stranger(ctx, id.addr().String())
			time.Sleep(time.Millisecond)
		}
	}()
	defer func() { cancel(); <-done }()
	groups := make([]Group, size)
	defer func() { closeAll(groups) }()
	errs := ranks(size, func(rank int) error {
		time.Sleep(time.Duration(rank) * 10 * time.Millisecond) // strangers come between them
		g, err := Join(context.Background(), id, rank, size, Options{Timeout: patience})
		if err != nil {
			return err
		}
		groups[rank] = g
		return exercise(g)
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestStrangersAreKeptOut(t *testing.T) {
	dial := func(addr string, f func(net.Conn)) {
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			f(c)
			_ = c.Close()
		}
	}
	for name, stranger := range map[string]func(context.Context, string){
		"who hang up": func(_ context.Context, addr string) { dial(addr, func(net.Conn) {}) },
		"who send garbage": func(_ context.Context, addr string) {
			dial(addr, func(c net.Conn) {
				b := make([]byte, 1000)
				_, _ = rand.Read(b)
				_, _ = c.Write(b)
			})
		},
		"who have another secret": func(_ context.Context, addr string) {
			dial(addr, func(c net.Conn) {
				if err := dialHandshake(c, testSecret, ticket{use: forRoot, rank: 1, size: 6}); !errors.Is(err, errStranger) {
					t.Errorf("the stranger sees %v", err)
				}
			})
		},
		"who claim a rank without proof": func(_ context.Context, addr string) {
			dial(addr, func(c net.Conn) {
				_ = c.SetDeadline(time.Now().Add(time.Second))
				_, _ = c.Write(opening())
				_, _ = c.Read(make([]byte, openingSize+proofSize))
				_, _ = c.Write(append(ticket{use: forRoot, rank: 1, size: 6}.append(nil), make([]byte, proofSize)...))
				if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("rank 0 answers %d bytes, %v", n, err)
				}
			})
		},
		"who repeat what rank 0 says": func(_ context.Context, addr string) {
			dial(addr, func(c net.Conn) {
				_ = c.SetDeadline(time.Now().Add(time.Second))
				_, _ = c.Write(opening())
				b := make([]byte, openingSize+proofSize)
				_, _ = c.Read(b)
				_, _ = c.Write(append(ticket{use: forRoot, rank: 1, size: 6}.append(nil), b[openingSize:]...))
				if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("rank 0 answers %d bytes, %v", n, err)
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) { joinAround(t, 6, stranger) })
	}
}

// TestSlowStrangersDoNotKeepRanksOut opens more connections than may be in the handshake at once
// and sends a byte on each now and then.
func TestSlowStrangersDoNotKeepRanksOut(t *testing.T) {
	var held []net.Conn
	joinAround(t, 6, func(_ context.Context, addr string) {
		for range 50 {
			if len(held) > 2*maxHandshakes {
				_ = held[0].Close()
				held = held[1:]
			}
			if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
				_, _ = c.Write([]byte{0x31})
				held = append(held, c)
			}
		}
	})
	for _, c := range held {
		_ = c.Close()
	}
}

// TestDoorHoldsFewStrangers counts the connections that a door keeps open.
func TestDoorHoldsFewStrangers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := openDoor(l, testSecret, func(_ ticket, c *net.TCPConn) { _ = c.Close() })
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	for range maxHandshakes + 100 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	_ = held[0].SetReadDeadline(time.Now().Add(patience))
	if _, err := held[0].Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the oldest stranger sees %v, want the end", err)
	}
	d.mu.Lock()
	if n := len(d.waiting); n > maxHandshakes {
		t.Errorf("%d strangers are held, at most %d may be", n, maxHandshakes)
	}
	d.mu.Unlock()
	d.close()
}

// TestStrangerAtRankZerosAddress has a server that is not rank 0 where the id says.
func TestStrangerAtRankZerosAddress(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"says nothing":       func(net.Conn) { time.Sleep(20 * time.Millisecond) },
		"speaks HTTP":        func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n" + strings.Repeat("x", 200))) },
		"has another secret": func(c net.Conn) { _, _ = acceptHandshake(c, [secretSize]byte{9}) },
		"hangs up":           func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_ = c.SetDeadline(time.Now().Add(time.Second))
					serve(c)
					_ = c.Close()
				}
			}()
			id := newID(testSecret, netip.MustParseAddrPort(l.Addr().String()))
			_, err = Join(context.Background(), id, 1, 2, Options{Timeout: 200 * time.Millisecond})
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "rank 0 did not start") || !strings.Contains(err.Error(), l.Addr().String()) {
				t.Errorf("got %v, want that rank 0 did not start", err)
			}
		})
	}
}

func TestJoinChecksItsArguments(t *testing.T) {
	id := loopbackID(t)
	for _, c := range []struct{ rank, size int }{{0, 0}, {-1, 2}, {2, 2}, {0, maxSize + 1}, {0, -1}} {
		if _, err := Join(context.Background(), id, c.rank, c.size, Options{}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("rank %d of %d", c.rank, c.size)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := Join(context.Background(), UniqueID{}, 0, 1, Options{}); !errors.Is(err, ErrBadID) {
		t.Errorf("zero id: %v", err)
	}
	if _, err := Join(context.Background(), id, 0, 1, Options{Timeout: -1}); err == nil {
		t.Error("negative timeout is taken")
	}
	t.Setenv("MORI_BOOTSTRAP_TIMEOUT", "soon")
	if _, err := Join(context.Background(), id, 0, 1, Options{}); err == nil || !strings.Contains(err.Error(), "MORI_BOOTSTRAP_TIMEOUT") {
		t.Errorf("timeout of a word: %v", err)
	}
}

// TestDisagreementIsNamedToAll has ranks that do not agree who they are. The last one comes late.
func TestDisagreementIsNamedToAll(t *testing.T) {
	for name, c := range map[string]struct {
		who  [][2]int // rank, size
		says string
	}{
		"another size":  {[][2]int{{0, 4}, {1, 4}, {2, 5}, {3, 4}}, "rank 2 was started with 5 ranks, rank 0 with 4"},
		"one rank more": {[][2]int{{0, 3}, {1, 3}, {3, 4}}, "rank 3 was started with 4 ranks, rank 0 with 3"},
		"a rank twice":  {[][2]int{{0, 5}, {2, 5}, {2, 5}, {1, 5}}, "two processes connected as rank 2"},
	} {
		t.Run(name, func(t *testing.T) {
			id := loopbackID(t)
			groups := make([]Group, len(c.who))
			defer func() { closeAll(groups) }()
			errs := ranks(len(c.who), func(i int) (err error) {
				if i == len(c.who)-1 {
					time.Sleep(50 * time.Millisecond)
				}
				groups[i], err = Join(context.Background(), id, c.who[i][0], c.who[i][1], Options{Timeout: patience})
				return err
			})
			for i, err := range errs {
				if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("rank %d of %d: %v, want %q", c.who[i][0], c.who[i][1], err, c.says)
				}
			}
		})
	}
}

// TestSecondRootIsRefused has two processes that say they are rank 0, of which the second finds the
// first.
func TestSecondRootIsRefused(t *testing.T) {
	id := loopbackID(t)
	first := make(chan error, 1)
	groups := make([]Group, 2)
	defer func() { closeAll(groups) }()
	go func() {
		var err error
		groups[0], err = Join(context.Background(), id, 0, 2, Options{Timeout: patience})
		first <- err
	}()
	for {
		c, err := net.Dial("tcp", id.addr().String())
		if err == nil {
			_ = c.Close()
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := Join(context.Background(), id, 0, 2, Options{Timeout: patience}); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "another rank 0") {
		t.Errorf("second rank 0: %v", err)
	}
	var err error
	if groups[1], err = Join(context.Background(), id, 1, 2, Options{Timeout: patience}); err != nil {
		t.Error(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}
