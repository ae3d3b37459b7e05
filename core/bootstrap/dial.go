// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// A way is a connection on which this rank was let in.
type way struct {
	*net.TCPConn
	at  target
	who identity // at the other end
}

// A target is where rank 0 may be.
type target struct {
	addr   string
	secret [secretSize]byte
}

// join is every other rank's way in: to rank 0, at one of the targets, which are looked up again for each attempt; then to the parent that rank
// 0 names.
func join(ctx context.Context, rank, size int, o Options, targets func() ([]target, error)) (*member, error) {
	m, start := newMember(rank, size, o), time.Now()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	t := ticket{use: forRoot, rank: uint32(rank), size: uint32(size), who: self()}
	var home *door // where the children come
	defer func() {
		if home != nil {
			home.close()
		}
	}()
	// A rank with children listens at the address by which it reaches rank 0, which it knows only when it does.
	w, err := reach(ctx, targets, func(conn *net.TCPConn, at target) (ticket, error) {
		if home != nil {
			home.close()
			home = nil
		}
		if len(kidsOf(rank, o.radix, size)) == 0 {
			return t, nil
		}
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: conn.LocalAddr().(*net.TCPAddr).IP})
		if err != nil {
			return t, fmt.Errorf("listen for other ranks: %w", err)
		}
		home = openDoor(l, at.secret, m.admit)
		t.port = uint16(l.Addr().(*net.TCPAddr).Port)
		return t, nil
	})
	if err != nil {
		return nil, fmt.Errorf("rank 0 has not come within %s: %w", short(time.Since(start)), err)
	}
	if err := m.attach(0, w); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, m.settle(ctx, start, w.at.secret)
}

// settle finds this rank's parent and waits for all to have done so.
func (m *member) settle(ctx context.Context, start time.Time, secret [secretSize]byte) error {
	select {
	case addr := <-m.place:
		if addr != "" {
			m.climb(ctx, target{addr: addr, secret: secret})
		}
	case <-m.failed:
	case <-ctx.Done():
	}
	return m.awaitGo(ctx, start)
}

// climb connects with the parent. If that cannot be done, the group is broken.
func (m *member) climb(ctx context.Context, at target) {
	parent := parentOf(m.rank, m.radix)
	t := ticket{use: forParent, rank: uint32(m.rank), size: uint32(m.size)}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // no more attempts when the group is broken
		select {
		case <-m.failed:
			cancel()
		case <-inner.Done():
		}
	}()
	w, err := reach(inner, func() ([]target, error) { return []target{at}, nil }, func(*net.TCPConn, target) (ticket, error) { return t, nil })
	if err == nil {
		err = m.attach(parent, w)
	}
	if err != nil && ctx.Err() == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.report(failure{kind: failOther, text: fmt.Sprintf("rank %d cannot connect with rank %d: %v", m.rank, parent, err)})
	}
}

// attach makes w the link with rank 0, or with the parent, or both.
func (m *member) attach(peer int, w way) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.addLink(peer, w.TCPConn)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	if m.control[0] == nil {
		m.control[0] = l
		m.watch(l, w.who)
	}
	if peer == parentOf(m.rank, m.radix) {
		m.parent = l
		m.checkReady()
	}
	m.serve(l)
	return nil
}

// A refusal is what rank 0 says to a rank that it does not let in.
type refusal struct{ error }

// reach connects with one of the targets and is let in there. It tries until ctx is done; the error is the last attempt's.
func reach(ctx context.Context, targets func() ([]target, error), present func(*net.TCPConn, target) (ticket, error)) (way, error) {
	var last error
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		found, err := targets()
		if err != nil {
			last = err
		}
		for _, t := range found {
			w, err := knock(ctx, t, present)
			if err == nil {
				return w, nil
			}
			var no refusal
			if errors.As(err, &no) {
				return way{}, no.error
			}
			if ctx.Err() == nil || last == nil {
				last = fmt.Errorf("%s: %w", t.addr, err)
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return way{}, fmt.Errorf("%w; last attempt: %w", ctx.Err(), last)
		}
	}
}

// knock is one attempt.
func knock(ctx context.Context, at target, present func(*net.TCPConn, target) (ticket, error)) (way, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", at.addr)
	if err != nil {
		return way{}, err
	}
	conn, who := c.(*net.TCPConn), identity{}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = func() error {
		t, err := present(conn, at)
		if err != nil {
			return err
		}
		if err := greet(conn, at.secret, t); err != nil {
			return err
		}
		who, err = welcomed(conn, int(t.size))
		return err
	}()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return way{}, err
	}
	return way{TCPConn: conn, at: at, who: who}, nil
}

// welcomed reads the first frame, without anything behind it.
func welcomed(conn *net.TCPConn, size int) (identity, error) {
	f, err := readFrame(conn)
	switch {
	case err != nil:
		return identity{}, fmt.Errorf("no welcome: %w", err)
	case f.kind == frameWelcome && len(f.payload) == identitySize:
		return parseIdentity(f.payload), nil
	case f.kind == frameFailed:
		why, err := parseFailure(f.payload, size)
		if err != nil {
			return identity{}, err
		}
		return identity{}, refusal{why.err()}
	}
	return identity{}, fmt.Errorf("%w: kind %d before the welcome", errFrame, f.kind)
}
