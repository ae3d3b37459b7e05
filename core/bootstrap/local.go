// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"fmt"
	"sync"
)

// Local returns the groups of size ranks in this process, without a network: for tests, and for a
// process with several ranks.
func Local(size int) []Group {
	r := &room{size: size, failed: make(chan struct{}), left: make([]bool, size)}
	r.round = newRound(size)
	groups := make([]Group, size)
	for i := range groups {
		groups[i] = &local{room: r, rank: i}
	}
	return groups
}

// A room is the state that local ranks share.
type room struct {
	size   int
	failed chan struct{}

	mu    sync.Mutex
	round *round
	left  []bool
	err   error
}

// A round is one collective call of all ranks.
type round struct {
	blobs  [][]byte
	what   []string // what each rank called, "" if it has not come
	absent int
	done   chan struct{}
}

func newRound(size int) *round {
	return &round{blobs: make([][]byte, size), what: make([]string, size), absent: size, done: make(chan struct{})}
}

type local struct {
	*room
	rank   int
	closed bool // under room.mu
}

var _ Group = (*local)(nil)

func (l *local) Rank() int { return l.rank }
func (l *local) Size() int { return l.size }

func (l *local) AllGather(ctx context.Context, blob []byte) ([][]byte, error) {
	return l.exchange(ctx, "all-gather", blob)
}

func (l *local) Broadcast(ctx context.Context, root int, blob []byte) ([]byte, error) {
	if root < 0 || root >= l.size {
		return nil, fmt.Errorf("broadcast from rank %d of %d: no such rank", root, l.size)
	}
	blobs, err := l.exchange(ctx, fmt.Sprintf("broadcast from rank %d", root), blob)
	if err != nil {
		return nil, err
	}
	return blobs[root], nil
}

func (l *local) Barrier(ctx context.Context) error {
	_, err := l.exchange(ctx, "barrier", nil)
	return err
}

func (l *local) Failed() <-chan struct{} { return l.failed }

func (l *local) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close leaves. If ranks wait in a call for this one, they fail.
func (l *local) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed, l.left[l.rank] = true, true
	if l.round.absent < l.size {
		l.fail(&RankError{Rank: l.rank, Left: true})
	}
	return nil
}

// fail breaks the room, which l.mu protects.
func (r *room) fail(err error) {
	if r.err == nil {
		r.err = err
		close(r.failed)
	}
}

// exchange is one collective call: it returns every rank's blob when all have come.
func (l *local) exchange(ctx context.Context, what string, blob []byte) ([][]byte, error) {
	now, err := l.enter(what, blob)
	if err != nil {
		return nil, err
	}
	select {
	case <-now.done:
	case <-l.failed:
	case <-ctx.Done():
	}
	if err := l.end(ctx, now); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return now.blobs, nil
}

// enter puts this rank's blob into the present round.
func (l *local) enter(what string, blob []byte) (*round, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("%s: %w", what, ErrClosed)
	}
	for rank, gone := range l.left {
		if gone {
			l.fail(&RankError{Rank: rank, Left: true})
		}
	}
	now := l.round
	for rank, other := range now.what {
		if other != "" && other != what {
			l.fail(fmt.Errorf("rank %d calls %s, rank %d %s: %w", l.rank, what, rank, other, ErrMismatch))
		}
	}
	if l.err != nil {
		return nil, fmt.Errorf("%s: %w", what, l.err)
	}
	now.blobs[l.rank], now.what[l.rank] = append([]byte(nil), blob...), what
	if now.absent--; now.absent == 0 {
		l.round = newRound(l.size)
		close(now.done)
	}
	return now, nil
}

// end returns why a call does not return blobs: the room failed, or some ranks were late, which
// breaks the room. A call that all ranks have entered succeeds on each of them, however late it is.
func (l *local) end(ctx context.Context, now *round) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case now.absent == 0:
		return nil
	case l.err != nil:
		return l.err
	}
	var absent []int
	for rank, other := range now.what {
		if other == "" {
			absent = append(absent, rank)
		}
	}
	l.fail(fmt.Errorf("ranks %v did not call it: %w", absent, ctx.Err()))
	return l.err
}
