// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// When a rank times out, or two ranks make different calls, rank 0 asks all ranks for their
// position. From the replies it makes a diagnosis for all: which ranks have not entered, which call
// each is in, which do not answer.

// A diagnosis is such a question with its replies.
type diagnosis struct {
	kind failureKind // failLate or failMismatch
	seq  uint64      // number of the call, if failLate
	what what
	text string // elapsed time, or what one rank has seen of the mismatch

	replies map[int]position
	leaves  map[int]uint64 // the member's
	timer   *time.Timer
}

// A position is the last call that a rank has entered, and whether the rank is still in it.
type position struct {
	seq  uint64
	what what
	in   bool
}

// frame is the reply to rank 0.
func (p position) frame() frame {
	f := frame{kind: frameHere, seq: p.seq, op: p.what.op, root: p.what.root}
	if p.in {
		f.rank = 1
	}
	return f
}

// A diagnoser makes the diagnoses of rank 0, one at a time. The member's mu protects it.
type diagnoser struct {
	m       *member
	current *diagnosis
}

// giveUp is called when ctx is done. It returns the reason, which breaks the group, or nil if the
// call completes at that moment.
func (m *member) giveUp(ctx context.Context, done <-chan struct{}, seq uint64, after time.Duration) error {
	m.mu.Lock()
	last := m.calls.last
	late := frame{kind: frameLate, seq: seq, op: last.op, root: last.root,
		payload: binary.LittleEndian.AppendUint64(nil, uint64(after))}
	if m.rank == 0 && m.err == nil {
		_ = m.diagnoser.late(0, late)
	} else if root := m.control[0]; root != nil && m.err == nil {
		root.send(late)
	}
	m.mu.Unlock()

	timer := time.NewTimer(replyTime)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-m.failed:
	case <-timer.C:
		m.mu.Lock()
		m.fail(failure{kind: failLate, text: fmt.Sprintf("rank 0 does not answer after %s", short(after))})
		m.mu.Unlock()
	}
	err := m.Err()
	switch {
	case err == nil:
		return ErrClosed // by another goroutine
	case errors.Is(err, ctx.Err()):
		return err
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// short rounds a duration for an error text.
func short(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// late handles a rank that timed out in Join or in a collective call. m.mu is held, here and below.
func (d *diagnoser) late(rank int, f frame) error {
	if len(f.payload) != 8 {
		return fmt.Errorf("%w: rank %d is late with %d bytes", errFrame, rank, len(f.payload))
	}
	within := short(time.Duration(binary.LittleEndian.Uint64(f.payload)))
	if d.m.assembly.isComplete() {
		d.start(&diagnosis{kind: failLate, seq: f.seq, what: f.what(), text: fmt.Sprintf("within %s", within)})
		return nil
	}
	missing, verb := d.m.notJoined(), "joined"
	if len(missing) == 0 {
		missing, verb = d.m.assembly.notReady(), "connected to the others"
	}
	d.m.fail(failure{kind: failLate,
		text: fmt.Sprintf("%s %s not %s within %s", ranksText(missing), have(missing), verb, within)})
	return nil
}

// start asks all ranks, unless a diagnosis is in progress.
func (d *diagnoser) start(q *diagnosis) {
	m := d.m
	if d.current != nil || m.err != nil {
		return
	}
	d.current = q
	q.leaves = m.leaves
	q.replies = map[int]position{0: m.calls.position()}
	q.timer = time.AfterFunc(askTime, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		d.conclude()
	})
	for rank, l := range m.control {
		if _, left := m.leaves[rank]; !left {
			l.send(frame{kind: frameWho})
		}
	}
	d.check()
}

// replied handles one rank's reply.
func (d *diagnoser) replied(rank int, p position) {
	if d.current != nil {
		d.current.replies[rank] = p
	}
	d.check()
}

// check concludes the diagnosis once all ranks have replied.
func (d *diagnoser) check() {
	if d.current == nil {
		return
	}
	for rank := range d.m.size {
		_, left := d.m.leaves[rank]
		if _, ok := d.current.replies[rank]; !ok && !left {
			return
		}
	}
	d.conclude()
}

// conclude breaks the group with the present knowledge, unless the call has ended on all ranks.
func (d *diagnoser) conclude() {
	q := d.current
	if q == nil {
		return
	}
	q.timer.Stop()
	if d.current = nil; q.over(d.m.size) {
		return
	}
	d.m.fail(q.verdict(d.m.size))
}

// stop ends the wait for replies.
func (d *diagnoser) stop() {
	if d.current != nil {
		d.current.timer.Stop()
	}
}

// over reports whether a late call has ended on all ranks meanwhile.
func (q *diagnosis) over(size int) bool {
	for rank := range size {
		_, left := q.leaves[rank]
		if p, ok := q.replies[rank]; !ok && !left || ok && p.seq < q.seq || p.seq == q.seq && p.in {
			return false
		}
	}
	return q.kind == failLate
}

// verdict evaluates the replies.
func (q *diagnosis) verdict(size int) failure {
	if q.kind == failMismatch {
		for _, p := range q.replies {
			q.seq = max(q.seq, p.seq)
		}
	}
	var missing, silent []int
	calls := map[string][]int{}
	for rank := range size {
		_, left := q.leaves[rank]
		switch p, ok := q.replies[rank]; {
		case !ok && left:
		case !ok:
			silent = append(silent, rank)
		case p.seq < q.seq:
			missing = append(missing, rank)
		case p.seq == q.seq:
			calls[p.what.String()] = append(calls[p.what.String()], rank)
		}
	}
	if len(calls) > 1 {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			parts = append(parts, fmt.Sprintf("%s in %s", ranksText(calls[name]), name))
		}
		return failure{kind: failMismatch, text: fmt.Sprintf("call %d: %s", q.seq, strings.Join(parts, ", "))}
	}
	if q.kind == failMismatch {
		return failure{kind: failMismatch, text: q.text}
	}
	var parts []string
	if len(missing) > 0 {
		parts = append(parts, fmt.Sprintf("%s %s not called %s %s", ranksText(missing), have(missing), q.what, q.text))
	}
	if len(silent) > 0 {
		verb := "do"
		if len(silent) == 1 {
			verb = "does"
		}
		parts = append(parts, fmt.Sprintf("%s %s not answer", ranksText(silent), verb))
	}
	if len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("all ranks have called %s, but its result did not arrive %s", q.what, q.text))
	}
	return failure{kind: failLate, text: strings.Join(parts, "; ")}
}
