// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// each runs f for every group at once and returns the errors.
func each(groups []Group, f func(Group) error) []error {
	errs := make([]error, len(groups))
	var wait sync.WaitGroup
	for i, g := range groups {
		wait.Add(1)
		go func() {
			defer wait.Done()
			errs[i] = f(g)
		}()
	}
	wait.Wait()
	return errs
}

func TestLocalGathersInOrder(t *testing.T) {
	groups := Local(5)
	errs := each(groups, func(g Group) error {
		for round := range 100 {
			got, err := g.AllGather(context.Background(), fmt.Appendf(nil, "%d of round %d", g.Rank(), round))
			if err != nil {
				return err
			}
			for rank, b := range got {
				if want := fmt.Sprintf("%d of round %d", rank, round); string(b) != want {
					return fmt.Errorf("blob %q, want %q", b, want)
				}
			}
			if b, err := g.Broadcast(context.Background(), 3, []byte{byte(g.Rank())}); err != nil || len(b) != 1 || b[0] != 3 {
				return fmt.Errorf("broadcast gave %v, %v", b, err)
			}
			if err := g.Barrier(context.Background()); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	for _, g := range groups {
		if err := g.Close(); err != nil || g.Err() != nil {
			t.Errorf("close: %v, %v", err, g.Err())
		}
	}
}

func TestLocalNamesWhoIsMissing(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	groups := Local(4)
	for _, err := range each(groups[:2], func(g Group) error { return g.Barrier(ctx) }) {
		if err == nil || !strings.Contains(err.Error(), "[2 3]") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want an error that names ranks 2 and 3", err)
		}
	}
}

// A call that all ranks have come to succeeds, although its limit has passed.
func TestLocalCallsOfAllRanksSucceed(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	g := Local(1)[0]
	for range 100 { // a choice between the two would fail half of them
		if err := g.Barrier(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLocalNoticesWhoLeft(t *testing.T) {
	groups := Local(3)
	time.AfterFunc(20*time.Millisecond, func() { _ = groups[1].Close() })
	var rank *RankError
	if err := groups[0].Barrier(context.Background()); !errors.As(err, &rank) || rank.Rank != 1 || !errors.Is(err, ErrRankLeft) {
		t.Errorf("got %v, want an error that names rank 1", err)
	}
	<-groups[2].Failed()
}

func TestLocalNoticesDifferentCalls(t *testing.T) {
	errs := each(Local(2), func(g Group) error {
		if g.Rank() == 0 {
			return g.Barrier(context.Background())
		}
		_, err := g.AllGather(context.Background(), nil)
		return err
	})
	for _, err := range errs {
		if !errors.Is(err, ErrMismatch) {
			t.Errorf("got %v, want ErrMismatch", err)
		}
	}
}
