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

// When a rank's time is over, or two ranks make different calls, rank 0 asks all ranks where they are, and tells all what it found: who has
// not come, who calls what, who does not answer.
type inquest struct {
	kind failureKind // failLate or failMismatch
	seq  uint64      // of the call, if failLate
	what what
	text string // how long it took, or what one rank has seen of the mismatch

	answers map[int]place
	leaves  map[int]uint64 // the member's
	timer   *time.Timer
}

// A place is the last call that a rank has entered, and whether it is still there.
type place struct {
	seq  uint64
	what what
	in   bool
}

// frame says it to rank 0.
func (p place) frame() frame {
	f := frame{kind: frameHere, seq: p.seq, op: p.what.op, root: p.what.root}
	if p.in {
		f.rank = 1
	}
	return f
}

// here is where this rank is. m.mu is held.
func (m *member) here() place { return place{seq: m.seq, what: m.last, in: m.cur != nil} }

// giveUp is called when ctx is done: it finds out why, which breaks the group, unless the call ends just then.
func (m *member) giveUp(ctx context.Context, done <-chan struct{}, seq uint64, after time.Duration) error {
	m.mu.Lock()
	payload := binary.LittleEndian.AppendUint64(nil, uint64(after))
	if m.rank == 0 && m.err == nil {
		_ = m.late(0, frame{seq: seq, payload: payload, op: m.last.op, root: m.last.root})
	} else if root := m.control[0]; root != nil && m.err == nil {
		root.send(frame{kind: frameLate, seq: seq, payload: payload, op: m.last.op, root: m.last.root})
	}
	m.mu.Unlock()

	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-m.failed:
	case <-timer.C:
		m.mu.Lock()
		m.fail(failure{kind: failLate, text: fmt.Sprintf("after %s rank 0 does not answer", short(after))})
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

// short leaves out digits that tell nothing.
func short(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// late is that rank's time in a call is over, or in Join. m.mu is held.
func (m *member) late(rank int, f frame) error {
	if len(f.payload) != 8 {
		return fmt.Errorf("%w: rank %d is late with %d bytes", errFrame, rank, len(f.payload))
	}
	within := short(time.Duration(binary.LittleEndian.Uint64(f.payload)))
	if m.isWent() {
		m.ask(&inquest{kind: failLate, seq: f.seq, what: f.what(), text: fmt.Sprintf("within %s", within)})
		return nil
	}
	missing, verb := m.notJoined(), "come"
	if len(missing) == 0 {
		missing, verb = m.notReady(), "connected with the others"
	}
	m.fail(failure{kind: failLate, text: fmt.Sprintf("%s %s not %s within %s", ranksText(missing), have(missing), verb, within)})
	return nil
}

// ask starts the inquest, if there is none yet. m.mu is held.
func (m *member) ask(q *inquest) {
	if m.inquest != nil || m.err != nil {
		return
	}
	m.inquest = q
	q.leaves = m.leaves
	q.answers = map[int]place{0: m.here()}
	q.timer = time.AfterFunc(askTime, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.conclude()
	})
	for rank, l := range m.control {
		if _, left := m.leaves[rank]; !left {
			l.send(frame{kind: frameWho})
		}
	}
	m.checkAnswers()
}

// answered is one rank's answer. m.mu is held.
func (m *member) answered(rank int, p place) {
	if m.inquest != nil {
		m.inquest.answers[rank] = p
	}
	m.checkAnswers()
}

func (m *member) checkAnswers() {
	if m.inquest == nil {
		return
	}
	for rank := range m.size {
		_, left := m.leaves[rank]
		if _, ok := m.inquest.answers[rank]; !ok && !left {
			return
		}
	}
	m.conclude()
}

// conclude breaks the group with what is known now, unless it turns out that the call has ended everywhere. m.mu is held.
func (m *member) conclude() {
	q := m.inquest
	if q == nil {
		return
	}
	q.timer.Stop()
	if m.inquest = nil; q.over(m.size) {
		return
	}
	m.fail(q.verdict(m.size))
}

// over tells whether a call that was late has ended at all ranks meanwhile.
func (q *inquest) over(size int) bool {
	for rank := range size {
		_, left := q.leaves[rank]
		if p, ok := q.answers[rank]; !ok && !left || ok && p.seq < q.seq || p.seq == q.seq && p.in {
			return false
		}
	}
	return q.kind == failLate
}

// verdict is what the answers say.
func (q *inquest) verdict(size int) failure {
	if q.kind == failMismatch {
		for _, p := range q.answers {
			q.seq = max(q.seq, p.seq)
		}
	}
	var missing, silent []int
	calls := map[string][]int{}
	for rank := range size {
		_, left := q.leaves[rank]
		switch p, ok := q.answers[rank]; {
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
		parts = append(parts, fmt.Sprintf("%s %s not come to %s %s", ranksText(missing), have(missing), q.what, q.text))
	}
	if len(silent) > 0 {
		verb := "do"
		if len(silent) == 1 {
			verb = "does"
		}
		parts = append(parts, fmt.Sprintf("%s %s not answer", ranksText(silent), verb))
	}
	if len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("all ranks have come to %s, but its result has not %s", q.what, q.text))
	}
	return failure{kind: failLate, text: strings.Join(parts, "; ")}
}
