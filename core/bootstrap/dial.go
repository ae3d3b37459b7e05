// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// A way is a connection whose handshake is complete.
type way struct {
	*net.TCPConn
	at  target
	who identity // at the other end
}

// A target is a possible address of rank 0.
type target struct {
	addr   string
	secret [secretSize]byte
}

// join connects every other rank: to rank 0, at one of the targets, which are resolved again for
// each attempt; then to the parent that rank 0 names.
func join(ctx context.Context, rank, size int, o Options, targets func() ([]target, error)) (*member, error) {
	m, start := newMember(rank, size, o), time.Now()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	t := ticket{use: forRoot, rank: uint32(rank), size: uint32(size), who: self()}
	var home *door // accepts the children
	defer func() {
		if home != nil {
			home.close()
		}
	}()
	// A rank with children listens at the address by which it reaches rank 0, which it knows only
	// after it has connected.
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
		home = openDoor(l, at.secret, m.assembly.admit)
		t.port = uint16(l.Addr().(*net.TCPAddr).Port)
		return t, nil
	})
	if err != nil {
		return nil, fmt.Errorf("rank 0 did not start within %s: %w", short(time.Since(start)), err)
	}
	if err := m.assembly.attach(0, w); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, m.assembly.settle(ctx, start, w.at.secret)
}

// A refusal is rank 0's reason for not admitting a rank.
type refusal struct{ error }

// reach connects to one of the targets until the handshake is complete. It retries until ctx is
// done; the error is that of the last attempt.
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
		if err := dialHandshake(conn, at.secret, t); err != nil {
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

// welcomed reads the first frame, and nothing beyond it.
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
