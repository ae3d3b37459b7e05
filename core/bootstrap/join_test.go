// SPDX-License-Identifier: MIT

package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait of a test that should succeed.
const patience = 30 * time.Second

// newID makes an id on loopback.
func loopbackID(t testing.TB) UniqueID {
	t.Helper()
	t.Setenv("MORI_SOCKET_IFNAME", "lo")
	id, err := NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reservations.release(id) })
	return id
}

// joinAll joins as all ranks of a new group in this process.
func joinAll(t testing.TB, size int, o Options) []Group {
	t.Helper()
	id := loopbackID(t)
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	groups := make([]Group, size)
	for i, err := range ranks(size, func(rank int) (err error) {
		groups[rank], err = Join(context.Background(), id, rank, size, o)
		return err
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	t.Cleanup(func() { closeAll(groups) })
	if t.Failed() {
		t.FailNow()
	}
	return groups
}

func closeAll(groups []Group) {
	for _, g := range groups {
		if g != nil {
			_ = g.Close()
		}
	}
}

// ranks runs f for each rank at once.
func ranks(size int, f func(rank int) error) []error {
	errs := make(chan error, size)
	out := make([]error, size)
	for rank := range size {
		go func() { out[rank] = f(rank); errs <- nil }()
	}
	for range size {
		<-errs
	}
	return out
}

// pattern is the blob of a rank in a round: of another length and other bytes for each.
func pattern(rank, round int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%d/%d ", rank, round), (rank*7+round*13)%50)
}

func exercise(g Group) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for round := range 20 {
		got, err := g.AllGather(ctx, pattern(g.Rank(), round))
		if err != nil {
			return err
		}
		for rank, b := range got {
			if !bytes.Equal(b, pattern(rank, round)) {
				return fmt.Errorf("round %d: rank %d's blob is %q", round, rank, b)
			}
			clear(b) // it is ours
		}
		root := round % g.Size()
		if b, err := g.Broadcast(ctx, root, pattern(g.Rank(), round)); err != nil || !bytes.Equal(b, pattern(root, round)) {
			return fmt.Errorf("round %d: broadcast gave %q, %v", round, b, err)
		}
		if err := g.Barrier(ctx); err != nil {
			return err
		}
	}
	return nil
}

func TestRanksExchange(t *testing.T) {
	for _, c := range []struct{ size, radix int }{{1, 8}, {2, 8}, {3, 1}, {4, 2}, {5, 1}, {7, 2}, {9, 8}, {10, 8}, {16, 3}, {16, 8}, {64, 8}, {64, 2}} {
		t.Run(fmt.Sprintf("%d ranks radix %d", c.size, c.radix), func(t *testing.T) {
			groups := joinAll(t, c.size, Options{radix: c.radix})
			if err := errors.Join(each(groups, exercise)...); err != nil {
				t.Error(err)
			}
			if err := errors.Join(each(groups, func(g Group) error { return g.Close() })...); err != nil {
				t.Error(err)
			}
			for _, g := range groups {
				if g.Err() != nil {
					t.Errorf("rank %d: %v after all have closed", g.Rank(), g.Err())
				}
				if err := g.Barrier(context.Background()); !errors.Is(err, ErrClosed) {
					t.Errorf("barrier after Close: %v", err)
				}
			}
		})
	}
}

func TestNeverComingRanksAreNamedToAll(t *testing.T) {
	id := loopbackID(t)
	const size = 12
	missing := map[int]bool{3: true, 5: true, 6: true, 7: true, 10: true}
	errs := ranks(size, func(rank int) error {
		if missing[rank] {
			return nil
		}
		_, err := Join(context.Background(), id, rank, size, Options{Timeout: 300 * time.Millisecond})
		return err
	})
	for rank, err := range errs {
		if !missing[rank] && (err == nil || !strings.Contains(err.Error(), "ranks 3, 5-7, 10 have not joined within 3") || !errors.Is(err, context.DeadlineExceeded)) {
			t.Errorf("rank %d: %v, want an error that names ranks 3, 5-7, 10", rank, err)
		}
	}
}

func TestRankZeroNeverComes(t *testing.T) {
	id := loopbackID(t)
	_, err := Join(context.Background(), id, 1, 2, Options{Timeout: 100 * time.Millisecond})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "rank 0 did not start") {
		t.Errorf("got %v, want an error that names rank 0", err)
	}
}

func TestMissingCallIsNamedToAll(t *testing.T) {
	groups := joinAll(t, 20, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	for rank, err := range each(groups, func(g Group) error {
		if r := g.Rank(); r == 2 || r >= 17 {
			<-g.Failed()
			return g.Err()
		}
		return g.Barrier(ctx)
	}) {
		if err == nil || !strings.Contains(err.Error(), "ranks 2, 17-19 have not called barrier") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("rank %d: %v, want an error that names ranks 2, 17-19", rank, err)
		}
	}
}

func TestDifferentCallsAreNamedToAll(t *testing.T) {
	for _, odd := range []int{0, 1, 9} {
		groups := joinAll(t, 12, Options{})
		for rank, err := range each(groups, func(g Group) error {
			if g.Rank() == odd {
				_, err := g.AllGather(context.Background(), nil)
				return err
			}
			return g.Barrier(context.Background())
		}) {
			if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d in all-gather", odd)) {
				t.Errorf("rank %d: %v, want ErrMismatch that names rank %d", rank, err, odd)
			}
		}
	}
}

func TestLeavingIsNamedToAll(t *testing.T) {
	for _, leaver := range []int{0, 1, 9} {
		groups := joinAll(t, 12, Options{})
		_ = groups[leaver].Close()
		for rank, err := range each(groups, func(g Group) error { return g.Barrier(context.Background()) }) {
			var who *RankError
			if rank != leaver && (!errors.As(err, &who) || who.Rank != leaver || !who.Left || !errors.Is(err, ErrRankLeft)) {
				t.Errorf("rank %d: %v, want an error that says that rank %d left", rank, err, leaver)
			}
		}
	}
}

// cut ends all connections of g as its death would.
func cut(g Group) {
	m := g.(*member)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	close(m.shut)
	for _, l := range m.links {
		_ = l.conn.Close()
	}
}

func TestDeathIsNamedToAll(t *testing.T) {
	for _, dead := range []int{0, 1, 9} {
		for _, idle := range []bool{true, false} {
			groups := joinAll(t, 12, Options{})
			time.AfterFunc(20*time.Millisecond, func() { cut(groups[dead]) })
			for rank, err := range each(groups, func(g Group) error {
				if g.Rank() == dead {
					return nil
				}
				if !idle {
					return g.Barrier(context.Background())
				}
				<-g.Failed()
				return g.Err()
			}) {
				var who *RankError
				if rank != dead && (!errors.As(err, &who) || who.Rank != dead || who.Left || !errors.Is(err, ErrRankDied)) {
					t.Errorf("rank %d: %v, want an error that says that rank %d died", rank, err, dead)
				}
			}
		}
	}
}

// TestDeathWhileOthersAreAwaited has a rank that comes and dies before all have come.
func TestDeathWhileOthersAreAwaited(t *testing.T) {
	id := loopbackID(t)
	errs := make(chan error, 2)
	for rank := range 2 {
		go func() {
			_, err := Join(context.Background(), id, rank, 4, Options{Timeout: patience})
			errs <- err
		}()
	}
	w, err := reach(context.Background(), func() ([]target, error) { return []target{{addr: id.addr().String(), secret: id.secret()}}, nil },
		func(*net.TCPConn, target) (ticket, error) { return ticket{use: forRoot, rank: 2, size: 4}, nil })
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	for range 2 {
		var who *RankError
		if err := <-errs; !errors.As(err, &who) || who.Rank != 2 || who.Left {
			t.Errorf("got %v, want that rank 2 has died", err)
		}
	}
}

// TestIdleRanksHearThatOneLeft has ranks that make no call while one leaves and they stay.
func TestIdleRanksHearThatOneLeft(t *testing.T) {
	for _, leaver := range []int{0, 10} {
		groups := joinAll(t, 12, Options{grace: 50 * time.Millisecond})
		_ = groups[leaver].Close()
		for rank, g := range groups {
			var who *RankError
			if rank == leaver {
				continue
			}
			if <-g.Failed(); !errors.As(g.Err(), &who) || who.Rank != leaver || !who.Left {
				t.Errorf("rank %d: %v, want that rank %d has left", rank, g.Err(), leaver)
			}
		}
	}
}

// TestRanksThatCloseOneByOneDoNotComplain is a slow end of all.
func TestRanksThatCloseOneByOneDoNotComplain(t *testing.T) {
	groups := joinAll(t, 12, Options{})
	if err := errors.Join(each(groups, exercise)...); err != nil {
		t.Fatal(err)
	}
	for i := range groups {
		g := groups[(i*5)%len(groups)]
		if err := g.Err(); err != nil {
			t.Errorf("rank %d before it closes: %v", g.Rank(), err)
		}
		if err := g.Close(); err != nil {
			t.Errorf("rank %d: %v", g.Rank(), err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestNobodyIsBlamedForTheDead has ranks that die one after the other while the others make calls
// and close as soon as one fails.
func TestNobodyIsBlamedForTheDead(t *testing.T) {
	const size = 20
	for round := range 15 {
		groups := joinAll(t, size, Options{radix: 1 + round%4})
		dead := map[int]bool{}
		for len(dead) < 1+round%3 {
			dead[rand.IntN(size)] = true
		}
		for rank := range dead {
			time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { cut(groups[rank]) })
		}
		for rank, err := range each(groups, func(g Group) error {
			for {
				if _, err := g.AllGather(context.Background(), pattern(g.Rank(), 1)); err != nil {
					return errors.Join(err, g.Close())
				}
			}
		}) {
			var who *RankError
			if !dead[rank] && (!errors.As(err, &who) || !dead[who.Rank] || who.Left) {
				t.Errorf("round %d, rank %d: %v, want that one of %v has died", round, rank, err, slices.Sorted(maps.Keys(dead)))
			}
		}
	}
}

func TestLaterCallsFailToo(t *testing.T) {
	groups := joinAll(t, 3, Options{})
	cut(groups[1])
	<-groups[2].Failed()
	var who *RankError
	for range 3 {
		if err := groups[2].Barrier(context.Background()); !errors.As(err, &who) || who.Rank != 1 {
			t.Errorf("a call after the death: %v", err)
		}
	}
	if err := groups[2].Close(); err != nil {
		t.Errorf("close after the death: %v", err)
	}
}

// TestVanishedHostsAreNoticed looks at what makes the kernel notice them.
func TestVanishedHostsAreNoticed(t *testing.T) {
	groups := joinAll(t, 2, Options{})
	for _, l := range groups[1].(*member).links {
		for name, o := range map[string]struct{ level, option, want int }{
			"SO_KEEPALIVE":     {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			"TCP_KEEPIDLE":     {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepIdle.Seconds())},
			"TCP_KEEPINTVL":    {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepEvery.Seconds())},
			"TCP_KEEPCNT":      {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepCount},
			"TCP_USER_TIMEOUT": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds())},
		} {
			var got int
			var err error
			if e := l.raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), o.level, o.option) }); e != nil || err != nil || got != o.want {
				t.Errorf("%s is %d, %v, %v; want %d", name, got, e, err, o.want)
			}
		}
	}
}
