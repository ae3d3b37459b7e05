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

// orphanGrace is how long this side may read what a process sent before it ended, if its socket
// stays open in another process.
const orphanGrace = 200 * time.Millisecond

// A Peer is the process at the other end of a unix socket.
type Peer struct {
	sock.Cred
	socket syscall.RawConn // of the stream
	pidfd  *os.File        // nil if the kernel returned none, or the process is this one

	life  syscall.RawConn  // of the pidfd; nil without one
	look  func(fd uintptr) // sets ended; made once, so that Dead does not allocate
	ended atomic.Bool
}

// OpenPeer asks the kernel which process is at the other end of conn.
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

// openPidfd returns nil if the kernel has no pidfds or the process is not visible.
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

// Followed reports whether the end of the process can be detected: it is this process, or there is
// a pidfd.
func (p *Peer) Followed() bool { return p.life != nil || p.PID == os.Getpid() }

// Dead reports whether the process is known to have ended.
func (p *Peer) Dead() bool {
	if p.life != nil && !p.ended.Load() {
		_ = p.life.Control(p.look) // fails once the file is closed
	}
	return p.ended.Load()
}

// AwaitEnd waits until the process has ended. It returns true if another process that inherited its
// socket, such as a forked child, keeps the socket open. If no process does, the reader of the
// socket sees its end. AwaitEnd also returns false if Close was called first, or if the kernel
// cannot report the end.
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
