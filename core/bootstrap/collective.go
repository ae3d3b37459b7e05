// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"fmt"
	"net"
	"time"
)

// All collective calls are one exchange: records of blobs go up the tree (frameUp) when a rank and all below it have entered, and all records
// come down again (frameDown). An inner node passes on what it got without a copy.

// A call is one collective call of this rank.
type call struct {
	what
	seq  uint64
	own  []byte // this rank's record
	sent bool   // up, to the parent
	done chan struct{}

	payload net.Buffers // all records, when done is closed
}

func (m *member) Barrier(ctx context.Context) error {
	_, err := m.meet(ctx, what{op: opBarrier}, nil, false)
	return err
}

func (m *member) AllGather(ctx context.Context, blob []byte) ([][]byte, error) {
	w := what{op: opAllGather}
	blobs, err := m.meet(ctx, w, blob, true)
	for rank := 0; err == nil && rank < m.size; rank++ {
		if blobs[rank] == nil {
			return nil, fmt.Errorf("%s: %w: rank %d's blob is not there", w, errFrame, rank)
		}
	}
	return blobs, err
}

func (m *member) Broadcast(ctx context.Context, root int, blob []byte) ([]byte, error) {
	if root < 0 || root >= m.size {
		return nil, fmt.Errorf("broadcast from rank %d of %d: no such rank", root, m.size)
	}
	w := what{op: opBroadcast, root: uint32(root)}
	blobs, err := m.meet(ctx, w, blob, root == m.rank)
	if err == nil && blobs[root] == nil {
		err = fmt.Errorf("%s: %w: its blob is not there", w, errFrame)
	}
	if err != nil {
		return nil, err
	}
	return blobs[root], nil
}

// meet returns the blobs of all ranks that gave one, in their places.
func (m *member) meet(ctx context.Context, w what, blob []byte, give bool) ([][]byte, error) {
	c := &call{what: w, done: make(chan struct{})}
	if give && len(blob) <= maxBlob { // the caller may change blob after an error, while it is still being sent
		c.own = append(appendRecordHead(make([]byte, 0, recordHead+len(blob)), m.rank, len(blob)), blob...)
	}
	start := time.Now()
	ctx, cancel := m.bound(ctx)
	defer cancel()
	if !give {
		blob = nil
	}
	if err := m.enter(c, len(blob)); err != nil {
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
	return m.blobs(c)
}

// blobs copies what other ranks still get from us: the caller may write into what it gets.
func (m *member) blobs(c *call) ([][]byte, error) {
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

// enter makes c the present call.
func (m *member) enter(c *call, n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return ErrClosed
	case m.err != nil:
		return m.err
	case m.cur != nil:
		return ErrBusy
	case n > maxBlob:
		m.report(failure{kind: failOther, text: fmt.Sprintf("rank %d gives %s a blob of %d bytes, at most %d may be", m.rank, c.what, n, maxBlob)})
		return m.err
	}
	m.seq++
	c.seq, m.cur, m.last = m.seq, c, c.what
	if m.checkLeaves(); m.err == nil {
		m.advance()
	}
	return m.err
}

// up is that a child and all ranks below it have entered a call. m.mu is held.
func (m *member) up(kid int, f frame) error {
	next := m.seq + 1
	if m.cur != nil {
		next = m.seq
	}
	if _, twice := m.ups[kid]; twice || f.seq != next {
		return fmt.Errorf("%w: call %d, want call %d", errFrame, f.seq, next)
	}
	m.ups[kid] = f
	m.advance()
	return nil
}

// advance passes the present call on, if all below have entered it. m.mu is held.
func (m *member) advance() {
	if !m.agree() || m.cur == nil || m.cur.sent || len(m.ups) < len(m.kids) {
		return
	}
	c := m.cur
	payload := net.Buffers{}
	if c.own != nil {
		payload = append(payload, c.own)
	}
	total := len(c.own)
	for _, f := range m.ups {
		if len(f.payload) > 0 {
			payload = append(payload, f.payload)
			total += len(f.payload)
		}
	}
	clear(m.ups)
	if c.sent = true; total > maxFrame {
		m.report(failure{kind: failOther, text: fmt.Sprintf("%s of %d bytes in all, at most %d may be", c.what, total, maxFrame)})
		return
	}
	if m.parent == nil {
		m.complete(payload)
		return
	}
	m.parent.send(frame{kind: frameUp, op: c.op, root: c.root, seq: c.seq}, payload...)
}

// agree tells whether all that is known of the present call is of one kind; if not, it has rank 0 find out who calls what. m.mu is held.
func (m *member) agree() bool {
	first, from := what{}, -1
	if m.cur != nil {
		first, from = m.cur.what, m.rank
	}
	for kid, f := range m.ups {
		if from < 0 {
			first, from = f.what(), kid
		}
		if f.what() == first {
			continue
		}
		text := fmt.Sprintf("call %d: rank %d calls %s, rank %d %s", f.seq, from, first, kid, f.what())
		if m.rank == 0 {
			m.ask(&inquest{kind: failMismatch, text: text})
		} else {
			m.tellRoot(failure{kind: failMismatch, text: text})
			m.later(answerTime, failure{kind: failMismatch, text: text})
		}
		return false
	}
	return true
}

// down is that all ranks have entered the present call. m.mu is held.
func (m *member) down(f frame) error {
	if c := m.cur; c == nil || !c.sent || f.seq != c.seq || f.what() != c.what {
		return fmt.Errorf("%w: result of call %d, %s", errFrame, f.seq, f.what())
	}
	var payload net.Buffers
	if len(f.payload) > 0 {
		payload = net.Buffers{f.payload}
	}
	m.complete(payload)
	return nil
}

// complete ends the present call here and tells the children. m.mu is held.
func (m *member) complete(payload net.Buffers) {
	c := m.cur
	for _, kid := range m.kids {
		kid.send(frame{kind: frameDown, op: c.op, root: c.root, seq: c.seq}, payload...)
	}
	m.cur = nil
	c.payload = payload
	close(c.done)
}
