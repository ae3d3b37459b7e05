// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"fmt"
	"net"
	"time"
)

// All collective calls are one exchange. Records of blobs travel up the tree (frameUp) when a rank
// and all ranks below it have entered. Then all records travel down (frameDown). An inner node
// forwards them without a copy.

// A call is one collective call of this rank.
type call struct {
	what
	seq  uint64
	own  []byte // this rank's record
	sent bool   // up, to the parent
	done chan struct{}

	payload net.Buffers // all records, when done is closed
}

// calls are the collective calls of a member, whose mu protects them.
type calls struct {
	m    *member
	seq  uint64        // calls entered
	last what          // the latest call
	cur  *call         // nil if the latest call is done
	ups  map[int]frame // by child: it and all ranks below it have entered
}

func (m *member) Barrier(ctx context.Context) error {
	_, err := m.exchange(ctx, what{op: opBarrier}, nil, false)
	return err
}

func (m *member) AllGather(ctx context.Context, blob []byte) ([][]byte, error) {
	w := what{op: opAllGather}
	blobs, err := m.exchange(ctx, w, blob, true)
	for rank := 0; err == nil && rank < m.size; rank++ {
		if blobs[rank] == nil {
			return nil, fmt.Errorf("%s: %w: rank %d's blob is missing", w, errFrame, rank)
		}
	}
	return blobs, err
}

func (m *member) Broadcast(ctx context.Context, root int, blob []byte) ([]byte, error) {
	if root < 0 || root >= m.size {
		return nil, fmt.Errorf("broadcast from rank %d of %d: no such rank", root, m.size)
	}
	w := what{op: opBroadcast, root: uint32(root)}
	blobs, err := m.exchange(ctx, w, blob, root == m.rank)
	if err == nil && blobs[root] == nil {
		err = fmt.Errorf("%s: %w: its blob is missing", w, errFrame)
	}
	if err != nil {
		return nil, err
	}
	return blobs[root], nil
}

// exchange returns the blobs of all ranks that passed one, by rank.
func (m *member) exchange(ctx context.Context, w what, blob []byte, give bool) ([][]byte, error) {
	c := &call{what: w, done: make(chan struct{})}
	if give && len(blob) <= maxBlob { // the caller may change blob after an error, while it is still being sent
		c.own = append(appendRecordHead(make([]byte, 0, recordHead+len(blob)), m.rank, len(blob)), blob...)
	}
	start := time.Now()
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.timeout)
		defer cancel()
	}
	if !give {
		blob = nil
	}
	if err := m.calls.enter(c, len(blob)); err != nil {
		return nil, fmt.Errorf("%s: %w", w, err)
	}
	select {
	case <-c.done:
	case <-m.failed:
		return nil, fmt.Errorf("%s: %w", w, m.Err())
	case <-m.shut:
		return nil, fmt.Errorf("%s: %w", w, ErrClosed)
	case <-ctx.Done():
		if err := m.giveUp(ctx, c.done, c.seq, time.Since(start)); err != nil {
			return nil, fmt.Errorf("%s: %w", w, err)
		}
	}
	return c.blobs(m)
}

// blobs copies the blobs that are still being sent to children: the caller may write into its own.
func (c *call) blobs(m *member) ([][]byte, error) {
	blobs := make([][]byte, m.size)
	shared := m.rank == 0 || len(kidsOf(m.rank, m.radix, m.size)) > 0
	for _, b := range c.payload {
		if shared {
			b = append([]byte(nil), b...)
		}
		if err := parseRecords(b, blobs); err != nil {
			return nil, fmt.Errorf("%s: %w", c.what, err)
		}
	}
	return blobs, nil
}

// enter makes c the current call. n is the size of its blob.
func (s *calls) enter(c *call, n int) error {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return ErrClosed
	case m.err != nil:
		return m.err
	case s.cur != nil:
		return ErrBusy
	case n > maxBlob:
		m.report(failure{kind: failOther, text: fmt.Sprintf("rank %d passes %s a blob of %d bytes, want at most %d",
			m.rank, c.what, n, maxBlob)})
		return m.err
	}
	s.seq++
	c.seq, s.cur, s.last = s.seq, c, c.what
	if m.checkLeaves(); m.err == nil {
		s.advance()
	}
	return m.err
}

// position returns this rank's position. m.mu is held, here and below.
func (s *calls) position() position { return position{seq: s.seq, what: s.last, in: s.cur != nil} }

// up handles a child's frame: it and all ranks below it have entered a call.
func (s *calls) up(kid int, f frame) error {
	next := s.seq + 1
	if s.cur != nil {
		next = s.seq
	}
	if _, twice := s.ups[kid]; twice || f.seq != next {
		return fmt.Errorf("%w: call %d, want call %d", errFrame, f.seq, next)
	}
	s.ups[kid] = f
	s.advance()
	return nil
}

// advance sends the current call up if all ranks below have entered it.
func (s *calls) advance() {
	m := s.m
	if !s.agree() || s.cur == nil || s.cur.sent || len(s.ups) < len(m.kids) {
		return
	}
	c := s.cur
	payload := net.Buffers{}
	if c.own != nil {
		payload = append(payload, c.own)
	}
	total := len(c.own)
	for _, f := range s.ups {
		if len(f.payload) > 0 {
			payload = append(payload, f.payload)
			total += len(f.payload)
		}
	}
	clear(s.ups)
	if c.sent = true; total > maxFrame {
		m.report(failure{kind: failOther, text: fmt.Sprintf("%s of %d bytes in total, want at most %d", c.what, total, maxFrame)})
		return
	}
	if m.parent == nil {
		s.complete(payload)
		return
	}
	m.parent.send(frame{kind: frameUp, op: c.op, root: c.root, seq: c.seq}, payload...)
}

// agree checks that this rank and its children are in the same call, as far as known. If not, it
// makes rank 0 diagnose which rank is in which call.
func (s *calls) agree() bool {
	m := s.m
	first, from := what{}, -1
	if s.cur != nil {
		first, from = s.cur.what, m.rank
	}
	for kid, f := range s.ups {
		if from < 0 {
			first, from = f.what(), kid
		}
		if f.what() == first {
			continue
		}
		text := fmt.Sprintf("call %d: rank %d calls %s, rank %d %s", f.seq, from, first, kid, f.what())
		if m.rank == 0 {
			m.diagnoser.start(&diagnosis{kind: failMismatch, text: text})
		} else {
			m.reportToRoot(failure{kind: failMismatch, text: text})
			m.failLater(replyTime, failure{kind: failMismatch, text: text})
		}
		return false
	}
	return true
}

// down handles the parent's frame: all ranks have entered the current call.
func (s *calls) down(f frame) error {
	if c := s.cur; c == nil || !c.sent || f.seq != c.seq || f.what() != c.what {
		return fmt.Errorf("%w: result of call %d, %s", errFrame, f.seq, f.what())
	}
	var payload net.Buffers
	if len(f.payload) > 0 {
		payload = net.Buffers{f.payload}
	}
	s.complete(payload)
	return nil
}

// complete ends the current call here and sends its result to the children.
func (s *calls) complete(payload net.Buffers) {
	c := s.cur
	for _, kid := range s.m.kids {
		kid.send(frame{kind: frameDown, op: c.op, root: c.root, seq: c.seq}, payload...)
	}
	s.cur = nil
	c.payload = payload
	close(c.done)
}
