// SPDX-License-Identifier: MIT

package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestCallsAreOneAtATime(t *testing.T) {
	groups := joinAll(t, 2, Options{})
	first := make(chan error, 1)
	go func() { first <- groups[0].Barrier(context.Background()) }()
	for {
		m := groups[0].(*member)
		m.mu.Lock()
		in := m.calls.cur != nil
		m.mu.Unlock()
		if in {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := groups[0].Barrier(context.Background()); !errors.Is(err, ErrBusy) {
		t.Errorf("second call at a time: %v", err)
	}
	if err := errors.Join(groups[1].Barrier(context.Background()), <-first); err != nil {
		t.Errorf("the first call: %v", err)
	}
	if _, err := groups[0].Broadcast(context.Background(), 2, nil); err == nil || groups[0].Err() != nil {
		t.Errorf("broadcast from rank 2 of 2: %v, and the group is %v", err, groups[0].Err())
	}
}

func TestCloseEndsTheCallOnItsWay(t *testing.T) {
	groups := joinAll(t, 3, Options{grace: time.Hour})
	time.AfterFunc(20*time.Millisecond, func() { _ = groups[1].Close() })
	if err := groups[1].Barrier(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("barrier of who closes: %v", err)
	}
	var who *RankError
	if err := groups[2].Barrier(context.Background()); !errors.As(err, &who) || who.Rank != 1 {
		t.Errorf("barrier of another rank: %v", err)
	}
}

func TestCancelledCallNamesWhoIsMissing(t *testing.T) {
	groups := joinAll(t, 3, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := groups[0].Barrier(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "ranks 1, 2 have not called") {
		t.Errorf("got %v, want that it is cancelled and ranks 1, 2 were missing", err)
	}
	<-groups[2].Failed()
	if err := groups[2].Err(); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("another rank sees %v", err)
	}
}

func TestTooLargeBlobIsNamedToAll(t *testing.T) {
	groups := joinAll(t, 3, Options{})
	huge := make([]byte, maxBlob+1)
	for rank, err := range each(groups, func(g Group) error {
		blob := []byte{1}
		if g.Rank() == 2 {
			blob = huge
		}
		_, err := g.AllGather(context.Background(), blob)
		return err
	}) {
		if err == nil || !strings.Contains(err.Error(), "rank 2 passes all-gather a blob of") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestLargeBlobs(t *testing.T) {
	groups := joinAll(t, 5, Options{radix: 2})
	const n = 1<<20 + 5
	if err := errors.Join(each(groups, func(g Group) error {
		for round := range 3 {
			blob := bytes.Repeat(fmt.Appendf(nil, "rank %d round %d", g.Rank(), round), n/14)
			all, err := g.AllGather(context.Background(), blob)
			if err != nil {
				return err
			}
			clear(blob)
			for rank, b := range all {
				if !bytes.Equal(b, bytes.Repeat(fmt.Appendf(nil, "rank %d round %d", rank, round), n/14)) {
					return fmt.Errorf("round %d: rank %d's blob came changed", round, rank)
				}
				clear(b)
			}
		}
		return nil
	})...); err != nil {
		t.Error(err)
	}
}

// TestCloseDoesNotWaitForRanksThatDoNotRead has two children with full sockets.
func TestCloseDoesNotWaitForRanksThatDoNotRead(t *testing.T) {
	groups := joinAll(t, 3, Options{Timeout: patience})
	root := groups[0].(*member)
	for _, g := range groups[1:] {
		m := g.(*member)
		m.mu.Lock() // its reader stops here
		defer m.mu.Unlock()
	}
	root.mu.Lock()
	for _, l := range root.links {
		l.send(frame{kind: frameGo})
		l.send(frame{kind: frameDown, op: opBarrier, payload: make([]byte, 64<<20)})
	}
	root.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		_ = root.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("Close waits for ranks that do not read")
	}
}
