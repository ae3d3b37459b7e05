// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"mori/core/config"
)

const (
	maxSize        = 1 << 16
	defaultTimeout = 300 * time.Second

	// A group that is broken while ranks come is told for so long to those that come later.
	lingerTime = time.Second

	// Between attempts to connect a rank waits at least and at most so long.
	firstPause, lastPause = 2 * time.Millisecond, 100 * time.Millisecond
)

// Options are how a group is joined. The zero value is good.
type Options struct {
	// Timeout bounds the joining, and every collective call whose ctx has no deadline. 0 is MORI_BOOTSTRAP_TIMEOUT.
	Timeout time.Duration

	// Name tells groups of one launch apart. Only JoinLaunched looks at it.
	Name string

	radix int           // of the tree
	grace time.Duration // leaveGrace
}

func (o Options) complete() (Options, error) {
	if o.radix == 0 {
		o.radix = radix
	}
	if o.grace == 0 {
		o.grace = leaveGrace
	}
	if o.Timeout < 0 {
		return o, fmt.Errorf("timeout %s is negative", o.Timeout)
	}
	if o.Timeout == 0 {
		s, err := config.Int(config.BootstrapTimeout, int(defaultTimeout/time.Second), 1, 1<<20)
		if err != nil {
			return o, err
		}
		o.Timeout = time.Duration(s) * time.Second
	}
	return o, nil
}

// Join makes this process rank of size ranks, which all call Join with the same id. It returns when all have come. If some do not in time, all
// that came get an error that names them.
func Join(ctx context.Context, id UniqueID, rank, size int, o Options) (Group, error) {
	return wrapJoin(rank, size, func() (*member, error) {
		if err := id.check(); err != nil {
			return nil, err
		}
		o, err := o.complete()
		if err != nil {
			return nil, err
		}
		defer reservations.release(id)
		if rank == 0 {
			return host(ctx, id.secret(), size, o, func(ctx context.Context) (net.Listener, error) { return listenReserved(ctx, id) })
		}
		return join(ctx, rank, size, o, func() ([]target, error) {
			return []target{{addr: id.addr().String(), secret: id.secret()}}, nil
		})
	})
}

// wrapJoin checks the numbers and names the act.
func wrapJoin(rank, size int, f func() (*member, error)) (Group, error) {
	if size < 1 || size > maxSize || rank < 0 || rank >= size {
		return nil, fmt.Errorf("join as rank %d of %d: want a rank from 0 to size-1, and 1 to %d ranks", rank, size, maxSize)
	}
	m, err := f()
	if err != nil {
		return nil, fmt.Errorf("join as rank %d of %d: %w", rank, size, err)
	}
	return m, nil
}

// host is rank 0's way in.
func host(ctx context.Context, secret [secretSize]byte, size int, o Options, listen func(context.Context) (net.Listener, error)) (*member, error) {
	m, start := newMember(0, size, o), time.Now()
	if size == 1 {
		m.goOn()
		return m, nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	l, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	d := openDoor(l, secret, m.admit)
	defer d.close()
	return m, m.awaitGo(ctx, start)
}

// awaitGo waits until all ranks are connected with each other, or leaves.
func (m *member) awaitGo(ctx context.Context, start time.Time) (err error) {
	select {
	case <-m.went:
		return nil
	case <-m.failed:
		m.linger(ctx)
		err = m.Err()
	case <-ctx.Done():
		err = m.giveUp(ctx, m.went, 0, time.Since(start))
	}
	if err != nil {
		err = errors.Join(err, m.Close())
	}
	return err
}

// linger keeps rank 0 a little longer in a group that is broken before it is complete, so that ranks which come now are told why.
func (m *member) linger(ctx context.Context) {
	if m.rank != 0 {
		return
	}
	end := time.NewTimer(lingerTime)
	defer end.Stop()
	select {
	case <-m.allCame:
	case <-end.C:
	case <-ctx.Done():
	}
}

// admit lets a rank in that has the secret: at rank 0 every rank, elsewhere children in the tree.
func (m *member) admit(t ticket, conn *net.TCPConn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rank := int(t.rank)
	if m.closed || m.isWent() { // who comes now is early for the next group, and tries again
		_ = conn.Close()
		return
	}
	l, err := m.addLink(rank, conn)
	if err != nil {
		_ = conn.Close() // the dialer tries again
		return
	}
	defer m.serve(l)
	if f := m.objection(t); f != nil {
		m.report(*f)
		l.send(frame{kind: frameFailed, payload: f.append(nil)})
		m.came(rank)
		return
	}
	l.send(frame{kind: frameWelcome, payload: self().append(nil)})
	if m.rank != 0 {
		m.kids[rank] = l
		m.checkReady()
		return
	}
	m.control[rank] = l
	m.watch(l, t.who)
	if parentOf(rank, m.radix) == 0 {
		m.kids[rank] = l
	}
	remote, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	m.homes[rank] = netip.AddrPortFrom(remote.Addr(), t.port).String()
	m.came(rank)
	m.checkJoined()
}

// came counts the ranks that rank 0 has heard of, welcome or not. m.mu is held.
func (m *member) came(rank int) {
	if m.rank != 0 || m.seen[rank] {
		return
	}
	if m.seen[rank] = true; len(m.seen) == m.size-1 {
		close(m.allCame)
	}
}

// objection is why t breaks the group, nil if it does not. m.mu is held.
func (m *member) objection(t ticket) *failure {
	rank := int(t.rank)
	use, known, allowed := uint8(forRoot), m.control[rank] != nil, rank != 0
	if m.rank != 0 {
		use, known, allowed = forParent, m.kids[rank] != nil, rank > 0 && parentOf(rank, m.radix) == m.rank
	}
	switch {
	case int(t.size) != m.size:
		return &failure{kind: failMismatch, text: fmt.Sprintf("rank %d says there are %d ranks, rank %d says %d", rank, t.size, m.rank, m.size)}
	case rank >= m.size || !allowed || t.use != use:
		return &failure{kind: failMismatch, text: fmt.Sprintf("a process came to rank %d as rank %d of %d", m.rank, rank, m.size)}
	case known:
		return &failure{kind: failMismatch, text: fmt.Sprintf("two processes came as rank %d", rank)}
	case m.err != nil:
		return &m.broke
	}
	return nil
}

// notJoined are the ranks that have not come to rank 0. m.mu is held, here and below.
func (m *member) notJoined() (ranks []int) {
	for r := 1; r < m.size; r++ {
		if m.control[r] == nil {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

func (m *member) notReady() (ranks []int) {
	for r := range m.size {
		if !m.ready[r] {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// checkJoined tells every rank where its parent is, once all have come to rank 0.
func (m *member) checkJoined() {
	if m.err != nil || m.placed || len(m.control) < m.size-1 {
		return
	}
	m.placed = true
	for rank, l := range m.control {
		place := frame{kind: framePlace}
		if p := parentOf(rank, m.radix); p != 0 {
			place.payload = []byte(m.homes[p])
		}
		l.send(place)
	}
	m.checkReady()
}

// checkReady tells rank 0 that this rank is connected with its parent and children; rank 0 tells all to go on when all are.
func (m *member) checkReady() {
	if m.err != nil || !m.placed || len(m.kids) < len(kidsOf(m.rank, m.radix, m.size)) || m.rank != 0 && m.parent == nil {
		return
	}
	if m.rank != 0 {
		m.control[0].send(frame{kind: frameReady})
		return
	}
	m.ready[0] = true
	if len(m.ready) < m.size {
		return
	}
	for _, l := range m.control {
		l.send(frame{kind: frameGo})
	}
	m.goOn()
}

func (m *member) goOn() {
	if !m.isWent() {
		close(m.went)
	}
}
