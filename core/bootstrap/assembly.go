// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// An assembly forms a member's group. First every rank connects to rank 0 and reports where it
// listens. Then rank 0 sends each rank the address of its parent in the tree. A rank that is
// connected to its parent and children is ready. Once all are ready, the group is complete. The
// member's mu protects everything but the channels.
type assembly struct {
	m *member

	done       chan struct{} // closed when the group is complete
	heard      chan struct{} // of rank 0: closed when every rank has connected, even if it was refused
	parentAddr chan string   // address of the parent, which rank 0 sends once

	parentKnown bool           // the addresses have been sent or received
	ready       map[int]bool   // of rank 0: ranks that are ready
	homes       map[int]string // of rank 0: addresses at which ranks listen for their children
	seen        map[int]bool   // of rank 0: ranks that have connected
}

func newAssembly(m *member) assembly {
	return assembly{m: m, done: make(chan struct{}), heard: make(chan struct{}), parentAddr: make(chan string, 1),
		ready: map[int]bool{}, homes: map[int]string{}, seen: map[int]bool{}}
}

// wait waits until the group is complete. Otherwise it closes the member.
func (a *assembly) wait(ctx context.Context, start time.Time) (err error) {
	select {
	case <-a.done:
		return nil
	case <-a.m.failed:
		a.linger(ctx)
		err = a.m.Err()
	case <-ctx.Done():
		err = a.m.giveUp(ctx, a.done, 0, time.Since(start))
	}
	if err != nil {
		err = errors.Join(err, a.m.Close())
	}
	return err
}

// linger keeps rank 0 of a broken, incomplete group for a short time, so that ranks that connect
// now get the reason.
func (a *assembly) linger(ctx context.Context) {
	if a.m.rank != 0 {
		return
	}
	end := time.NewTimer(lingerTime)
	defer end.Stop()
	select {
	case <-a.heard:
	case <-end.C:
	case <-ctx.Done():
	}
}

// admit adds the connection of a rank that has the secret: of any rank at rank 0, of children in
// the tree elsewhere.
func (a *assembly) admit(t ticket, conn *net.TCPConn) {
	m := a.m
	m.mu.Lock()
	defer m.mu.Unlock()
	rank := int(t.rank)
	if m.closed || a.isComplete() { // it is early for the next group, and retries
		_ = conn.Close()
		return
	}
	l, err := m.addLink(rank, conn)
	if err != nil {
		_ = conn.Close() // the dialer retries
		return
	}
	defer m.serve(l)
	if f := a.objection(t); f != nil {
		m.report(*f)
		l.send(frame{kind: frameFailed, payload: f.append(nil)})
		a.count(rank)
		return
	}
	l.send(frame{kind: frameWelcome, payload: self().append(nil)})
	if m.rank != 0 {
		m.kids[rank] = l
		a.checkReady()
		return
	}
	m.control[rank] = l
	l.watch(t.who, m.lost)
	if parentOf(rank, m.radix) == 0 {
		m.kids[rank] = l
	}
	remote, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	a.homes[rank] = netip.AddrPortFrom(remote.Addr(), t.port).String()
	a.count(rank)
	a.sendParents()
}

// attach makes w the link with rank 0, or with the parent, or both.
func (a *assembly) attach(peer int, w way) error {
	m := a.m
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.addLink(peer, w.TCPConn)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	if m.control[0] == nil {
		m.control[0] = l
		l.watch(w.who, m.lost)
	}
	if peer == parentOf(m.rank, m.radix) {
		m.parent = l
		a.checkReady()
	}
	m.serve(l)
	return nil
}

// settle connects to this rank's parent and waits until the group is complete.
func (a *assembly) settle(ctx context.Context, start time.Time, secret [secretSize]byte) error {
	select {
	case addr := <-a.parentAddr:
		if addr != "" {
			a.climb(ctx, target{addr: addr, secret: secret})
		}
	case <-a.m.failed:
	case <-ctx.Done():
	}
	return a.wait(ctx, start)
}

// climb connects to the parent. If it fails, the group is broken.
func (a *assembly) climb(ctx context.Context, at target) {
	m := a.m
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
	targets := func() ([]target, error) { return []target{at}, nil }
	w, err := reach(inner, targets, func(*net.TCPConn, target) (ticket, error) { return t, nil })
	if err == nil {
		err = a.attach(parent, w)
	}
	if err != nil && ctx.Err() == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.report(failure{kind: failOther, text: fmt.Sprintf("rank %d cannot connect to rank %d: %v", m.rank, parent, err)})
	}
}

// count counts a rank that has connected to rank 0, refused or not. m.mu is held, here and below.
func (a *assembly) count(rank int) {
	if a.m.rank != 0 || a.seen[rank] {
		return
	}
	if a.seen[rank] = true; len(a.seen) == a.m.size-1 {
		close(a.heard)
	}
}

// objection returns why t breaks the group, nil if it does not.
func (a *assembly) objection(t ticket) *failure {
	m, rank := a.m, int(t.rank)
	use, known, allowed := uint8(forRoot), m.control[rank] != nil, rank != 0
	if m.rank != 0 {
		use, known, allowed = forParent, m.kids[rank] != nil, rank > 0 && parentOf(rank, m.radix) == m.rank
	}
	mismatch := func(format string, args ...any) *failure {
		return &failure{kind: failMismatch, text: fmt.Sprintf(format, args...)}
	}
	switch {
	case int(t.size) != m.size:
		return mismatch("rank %d was started with %d ranks, rank %d with %d", rank, t.size, m.rank, m.size)
	case rank >= m.size || !allowed || t.use != use:
		return mismatch("a process connected to rank %d as rank %d of %d", m.rank, rank, m.size)
	case known:
		return mismatch("two processes connected as rank %d", rank)
	case m.err != nil:
		return &m.broke
	}
	return nil
}

// notReady lists the ranks that are not ready.
func (a *assembly) notReady() (ranks []int) {
	for r := range a.m.size {
		if !a.ready[r] {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// sendParents sends every rank the address of its parent, once all have connected to rank 0.
func (a *assembly) sendParents() {
	m := a.m
	if m.err != nil || a.parentKnown || len(m.control) < m.size-1 {
		return
	}
	a.parentKnown = true
	for rank, l := range m.control {
		f := frame{kind: frameParent}
		if p := parentOf(rank, m.radix); p != 0 {
			f.payload = []byte(a.homes[p])
		}
		l.send(f)
	}
	a.checkReady()
}

// receiveParent handles the address of this rank's parent.
func (a *assembly) receiveParent(addr string) {
	a.parentKnown = true
	a.parentAddr <- addr
	a.checkReady()
}

// receiveReady handles a rank's message that it is ready.
func (a *assembly) receiveReady(rank int) {
	a.ready[rank] = true
	a.checkReady()
}

// checkReady notifies rank 0 once this rank is ready. Rank 0 completes the group once all are.
func (a *assembly) checkReady() {
	m := a.m
	connected := len(m.kids) >= len(kidsOf(m.rank, m.radix, m.size)) && (m.rank == 0 || m.parent != nil)
	if m.err != nil || !a.parentKnown || !connected {
		return
	}
	if m.rank != 0 {
		m.control[0].send(frame{kind: frameReady})
		return
	}
	a.ready[0] = true
	if len(a.ready) < m.size {
		return
	}
	for _, l := range m.control {
		l.send(frame{kind: frameGo})
	}
	a.complete()
}

func (a *assembly) complete() {
	if !a.isComplete() {
		close(a.done)
	}
}

func (a *assembly) isComplete() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}
