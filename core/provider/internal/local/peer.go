// SPDX-License-Identifier: MIT

package local

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"mori/core/internal/sys"
)

// orphanGrace is the time to read what a process that has ended had sent, when its socket outlives it.
const orphanGrace = 200 * time.Millisecond

// A Peer is the process at the other end of a unix socket.
type Peer struct {
	sys.Cred
	socket syscall.RawConn // the stream's
	pidfd  *os.File        // nil if the kernel gave none, or the process is this one
}

// OpenPeer asks the kernel.
func OpenPeer(conn *net.UnixConn) (*Peer, error) {
	p := &Peer{}
	var err error
	if p.socket, err = conn.SyscallConn(); err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	if e := p.socket.Control(func(fd uintptr) { p.Cred, err = sys.PeerCred(int(fd)) }); e != nil {
		return nil, fmt.Errorf("peer credentials: %w", e)
	}
	if err != nil {
		return nil, err
	}
	p.pidfd = openPidfd(p.PID)
	return p, nil
}

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

// Close closes what OpenPeer opened, and ends AwaitEnd.
func (p *Peer) Close() {
	if p.pidfd != nil {
		_ = p.pidfd.Close() // nothing is written to it
	}
}

// Dead tells whether the process is known to have ended.
func (p *Peer) Dead() bool {
	if p.pidfd == nil {
		return false
	}
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return false
	}
	dead := false
	_ = raw.Control(func(fd uintptr) { dead = sys.Readable(int(fd)) })
	return dead
}

// AwaitEnd waits until the process has ended, and reports true if somebody who inherited its socket, such as a forked child, keeps that
// open. If nobody does, who reads the socket finds its end. False, too: Close was called first, or the kernel does not tell.
func (p *Peer) AwaitEnd() bool {
	if p.pidfd == nil {
		return false
	}
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return false
	}
	if raw.Read(func(fd uintptr) bool { return sys.Readable(int(fd)) }) != nil {
		return false
	}
	time.Sleep(orphanGrace)
	hungUp := true
	return p.socket.Control(func(fd uintptr) { hungUp = sys.HungUp(int(fd)) }) == nil && !hungUp
}
