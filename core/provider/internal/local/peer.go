// SPDX-License-Identifier: MIT

package local

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"mori/core/internal/sys"
	"mori/core/internal/sys/sock"
)

// orphanGrace is the time to read what a process that has ended had sent, when its socket outlives
// it.
const orphanGrace = 200 * time.Millisecond

// A Peer is the process at the other end of a unix socket.
type Peer struct {
	sock.Cred
	socket syscall.RawConn // the stream's
	pidfd  *os.File        // nil if the kernel gave none, or the process is this one

	life  syscall.RawConn  // the pidfd's; nil without
	look  func(fd uintptr) // notes in ended whether the process has ended; made once, so that Dead allocates nothing
	ended atomic.Bool
}

// OpenPeer asks the kernel.
func OpenPeer(conn *net.UnixConn) (*Peer, error) {
	p := &Peer{}
	var err error
	if p.socket, err = conn.SyscallConn(); err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	if e := p.socket.Control(func(fd uintptr) { p.Cred, err = sock.PeerCred(int(fd)) }); e != nil {
		return nil, fmt.Errorf("peer credentials: %w", e)
	}
	if err != nil {
		return nil, err
	}
	p.follow()
	return p, nil
}

// follow prepares Dead and AwaitEnd.
func (p *Peer) follow() {
	if p.pidfd = openPidfd(p.PID); p.pidfd == nil {
		return
	}
	p.life, _ = p.pidfd.SyscallConn() // fails on closed files only
	p.look = func(fd uintptr) {
		if sys.Readable(int(fd)) {
			p.ended.Store(true)
		}
	}
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

// Followed reports whether the end of the process would be noticed: it is this process, or there is
// a pidfd.
func (p *Peer) Followed() bool { return p.life != nil || p.PID == os.Getpid() }

// Dead reports whether the process is known to have ended.
func (p *Peer) Dead() bool {
	if p.life != nil && !p.ended.Load() {
		_ = p.life.Control(p.look) // fails once the file is closed
	}
	return p.ended.Load()
}

// AwaitEnd waits until the process has ended, and reports true if somebody who inherited its
// socket, such as a forked child, keeps that open. If nobody does, who reads the socket finds its
// end. False, too: Close was called first, or the kernel does not say.
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
	return p.socket.Control(func(fd uintptr) { hungUp = sock.HungUp(int(fd)) }) == nil && !hungUp
}
