// SPDX-License-Identifier: MIT

package bootstrap

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How a host that has vanished is detected: by keepalive on an idle connection, by TCP_USER_TIMEOUT
// while data is in transit.
const (
	keepIdle    = 5 * time.Second
	keepEvery   = 5 * time.Second
	keepCount   = 3
	userTimeout = 20 * time.Second

	flushFor = 2 * time.Second // how long Close waits until its messages have left this process
	drainFor = time.Second     // how long a closed link waits for its peer to close too
)

// A link is an authenticated connection to another rank. Frames leave in the order of send, which
// never blocks: it tries to write at once, and a goroutine writes the rest.
type link struct {
	peer int
	conn *net.TCPConn
	raw  syscall.RawConn

	process *os.File // process of the peer, to detect its end; nil if that is impossible

	mu      sync.Mutex
	queue   net.Buffers
	idle    chan struct{} // of the goroutine that writes queue: closed when it ends; nil without one
	closing bool
	broken  bool
}

func newLink(peer int, conn *net.TCPConn) (*link, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	err = errors.Join(conn.SetDeadline(time.Time{}),
		conn.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepIdle, Interval: keepEvery, Count: keepCount}))
	if e := raw.Control(func(fd uintptr) {
		err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds())))
	}); e != nil {
		err = errors.Join(err, e)
	}
	if err != nil {
		return nil, err
	}
	return &link{peer: peer, conn: conn, raw: raw}, nil
}

// send queues a frame whose payload parts must not change any more. A broken link drops it: its
// reader reports the error.
func (l *link) send(f frame, parts ...[]byte) {
	n := len(f.payload)
	for _, p := range parts {
		n += len(p)
	}
	bufs := net.Buffers{f.head(n)}
	for _, p := range append([][]byte{f.payload}, parts...) {
		if len(p) > 0 {
			bufs = append(bufs, p)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken || l.closing {
		return
	}
	if l.idle == nil {
		bufs = l.try(bufs)
	}
	if len(bufs) == 0 || l.broken {
		return
	}
	l.queue = append(l.queue, bufs...)
	if l.idle == nil {
		l.idle = make(chan struct{})
		go l.flush(l.idle)
	}
}

// try writes what the socket takes at once and returns the rest. l.mu is held.
func (l *link) try(bufs net.Buffers) net.Buffers {
	var n int
	var err error
	if e := l.raw.Write(func(fd uintptr) bool {
		n, err = unix.Writev(int(fd), bufs)
		return true // never wait
	}); e != nil {
		err = e
	}
	if err != nil && err != unix.EAGAIN && err != unix.EINTR {
		l.broken = true
		return nil
	}
	for n = max(n, 0); len(bufs) > 0 && n >= len(bufs[0]); bufs = bufs[1:] {
		n -= len(bufs[0])
	}
	if len(bufs) > 0 {
		bufs[0] = bufs[0][n:]
	}
	return bufs
}

// flush writes the queue until it is empty.
func (l *link) flush(idle chan struct{}) {
	defer close(idle)
	for {
		l.mu.Lock()
		queue := l.queue
		l.queue = nil
		if len(queue) == 0 || l.broken {
			l.idle = nil
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if _, err := queue.WriteTo(l.conn); err != nil {
			l.mu.Lock()
			l.broken = true
			l.mu.Unlock()
		}
	}
}

// read passes every frame to handle until the connection ends, then closes it and returns why.
func (l *link) read(handle func(frame)) error {
	r := bufio.NewReader(l.conn)
	for {
		f, err := readFrame(r)
		if err != nil {
			l.mu.Lock()
			l.broken = true
			l.mu.Unlock()
			if l.process != nil {
				_ = l.process.Close()
			}
			_ = l.conn.Close()
			return err
		}
		handle(f)
	}
}

// finish accepts no more frames, and sends the queued ones, until ctx is done. The link's reader
// reads until the peer closes, because closing a connection with unread data would destroy data in
// transit to the peer.
func (l *link) finish(ctx context.Context) {
	l.mu.Lock()
	l.closing = true
	idle := l.idle
	l.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			_ = l.conn.Close()
			return
		}
	}
	_ = l.conn.CloseWrite()
	_ = l.conn.SetReadDeadline(time.Now().Add(drainFor))
}

// causeText describes a connection's end, for an error that names the rank already.
func causeText(err error) string {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "its connection was closed"
	}
	return err.Error()
}
