// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"os"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// letGo bounds the wait for a peer: to return a loan, or to end the slices that it is copying.
const letGo = 5 * time.Second

// Stop ends all ops and all loans, in both directions; see stream.Direct.
func (m *mover) Stop(cause error) {
	if cause == nil {
		cause = fabric.ErrConnAborted
	}
	m.mu.Lock()
	m.cause = cause
	m.stopping.Store(true)
	var parked []parkedOp
	for _, l := range m.asked {
		parked = append(parked, l.parked...)
		l.parked = nil
	}
	m.mu.Unlock()
	fenceClose(m.inbox.notices.mem)
	empty := m.ops.shut()
	m.domain.pool.cancel(m, cause)
	for _, p := range parked {
		m.finish(p.ticket, cause)
	}
	for _, n := range m.notifier.stop() {
		m.finish(n.ticket, cause)
	}
	m.awaitPeer()
	m.inbox.settle()
	for _, s := range m.outbox.stop() {
		m.finish(s.ticket, cause)
	}
	<-empty
	m.lender.stop()
	m.inbox.stop(cause)
	m.greet.free()
	m.domain.leave(m)
}

// awaitPeer waits until the peer copies nothing from or to this side's memory. No copy begins any more.
func (m *mover) awaitPeer() {
	deadline := time.Now().Add(letGo)
	for nap := 20 * time.Microsecond; !fenceEmpty(m.inbox.notices.mem); nap = min(2*nap, 10*time.Millisecond) {
		if m.greet.peerDead() {
			return
		}
		if time.Now().After(deadline) {
			m.log.Warn("shm: peer does not end its copies", "peer", m.ep.Peer(), "pid", m.greet.cred.PID, "after", letGo)
			return
		}
		time.Sleep(nap)
	}
}

// watch ends the connection when the peer's process has ended, although somebody who inherited its socket, such as a forked child, keeps
// that open. If nobody does, the stream reads to the socket's end by itself.
func (m *mover) watch() {
	if m.greet.pidfd == nil {
		return
	}
	raw, err := m.greet.pidfd.SyscallConn()
	if err != nil {
		return
	}
	if raw.Read(func(fd uintptr) bool { return sys.Readable(int(fd)) }) != nil {
		return // closed by free: the connection ended first
	}
	time.Sleep(orphanGrace)
	hungUp := true
	if m.greet.socket.Control(func(fd uintptr) { hungUp = sys.HungUp(int(fd)) }) == nil && !hungUp {
		m.ep.Fail(fmt.Errorf("process %d of %s ended: %w", m.greet.cred.PID, m.ep.Peer(), fabric.ErrConnReset))
	}
}

// orphanGrace is the time to read what a process that has ended had sent, when its socket outlives it.
const orphanGrace = 200 * time.Millisecond

// openPidfd returns nil where the kernel has no pidfds or the process is not visible.
func openPidfd(pid int) *os.File {
	if pid == 0 || pid == os.Getpid() {
		return nil
	}
	fd, err := sys.Pidfd(pid)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "pidfd")
}

// peerDead tells whether the peer's process is known to have ended.
func (g *greeting) peerDead() bool {
	if g.pidfd == nil {
		return false
	}
	raw, err := g.pidfd.SyscallConn()
	if err != nil {
		return false
	}
	dead := false
	_ = raw.Control(func(fd uintptr) { dead = sys.Readable(int(fd)) })
	return dead
}
