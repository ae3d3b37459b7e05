// SPDX-License-Identifier: MIT

package stream

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
)

const (
	// stagingLen is the buffer through which headers, tables and small payloads arrive. Each read of a payload ends in it, so that
	// the next header comes by the same system call.
	stagingLen = 16 << 10
	// tailLen is the part of it that a long payload's reads end in: what arrives here is copied once more, and behind a long payload
	// comes another one, as a rule.
	tailLen = 1 << 10
	// trashLen is the buffer for payload that nobody wants.
	trashLen = 64 << 10
	// answerFirst is the payload before whose reading queued answers are sent.
	answerFirst = 128 << 10
)

// errEnded stops a reader whose connection ended on this side.
var errEnded = errors.New("connection ended")

// A reader is the receiving direction of a link. It belongs to one goroutine but for holds.
type reader struct {
	buf     []byte // staging
	r, w    int    // what of it is read and filled
	drained bool   // the last read got less than it asked for
	h       header
	segs    []fabric.RSeg
	iov     []sys.Iovec
	trash   []byte
	goodbye bool

	holds atomic.Pointer[util.MR] // the region that payload is arriving in

	arg  []sys.Iovec
	try  func(fd uintptr) bool // for RawConn.Read
	tryN int
	err  error
}

func (in *reader) init() {
	in.buf = make([]byte, stagingLen)
	in.try = func(fd uintptr) bool {
		in.tryN, in.err = sys.Recvv(int(fd), in.arg, syscall.MSG_DONTWAIT)
		return in.err != syscall.EAGAIN
	}
}

// readLoop takes frames until the connection ends.
func (l *link) readLoop() {
	defer l.ep.fate.readers.Done()
	err := l.frames()
	switch {
	case l.ep.fate.isEnded():
		l.discardRest()
	case l.in.goodbye && errors.Is(err, fabric.ErrConnReset):
		// the other links end by their own goodbyes
	default:
		l.ep.Fail(err)
	}
}

func (l *link) frames() error {
	in := &l.in
	for {
		if err := l.need(headerLen); err != nil {
			return err
		}
		if err := parseHeader(&in.h, in.buf[in.r:in.w]); err != nil {
			return fmt.Errorf("frame of %s: %w", l.ep.peer, err)
		}
		in.r += headerLen
		if err := l.frame(&in.h); err != nil {
			return err
		}
	}
}

// need makes n bytes lie in the staging buffer from in.r on.
func (l *link) need(n int) error {
	in := &l.in
	if in.w-in.r >= n {
		return nil
	}
	in.w = copy(in.buf, in.buf[in.r:in.w])
	in.r = 0
	for in.w < n {
		in.iov = append(in.iov[:0], sys.Iovec{Addr: sys.AddrOf(in.buf) + uint64(in.w), Len: uint64(stagingLen - in.w)})
		m, err := l.recv(in.iov, uint64(stagingLen-in.w))
		if err != nil {
			return err
		}
		in.w += m
	}
	return nil
}

// receive fills dst with payload. It changes the entries of dst and needs capacity for one more.
func (l *link) receive(dst []sys.Iovec, n uint64) error {
	in := &l.in
	for n > 0 && in.r < in.w {
		dst = sys.Advance(dst, 0)
		m := copy(sys.Bytes(dst[0].Addr, int(dst[0].Len)), in.buf[in.r:in.w])
		in.r += m
		n -= uint64(m)
		dst = sys.Advance(dst, uint64(m))
	}
	for n > 0 {
		in.r, in.w = 0, 0
		dst = sys.Advance(dst, 0)
		tail := uint64(stagingLen)
		if n > stagingLen {
			tail = tailLen
		}
		m, err := l.recv(append(dst, sys.Iovec{Addr: sys.AddrOf(in.buf), Len: tail}), n+tail)
		if err != nil {
			return err
		}
		if uint64(m) > n {
			in.w = m - int(n)
			return nil
		}
		n -= uint64(m)
		dst = sys.Advance(dst, uint64(m))
	}
	return nil
}

// discard takes n bytes of payload that go nowhere.
func (l *link) discard(n uint64) error {
	in := &l.in
	if n == 0 {
		return nil
	}
	if in.trash == nil {
		in.trash = make([]byte, trashLen)
	}
	for n > 0 {
		m := min(n, trashLen)
		if err := l.receive(append(in.iov[:0], sys.Iovec{Addr: sys.AddrOf(in.trash), Len: m}), m); err != nil {
			return err
		}
		n -= m
	}
	in.trash = nil
	return nil
}

// recv reads once into iov, which asks for want bytes or more. Before it waits it sends the answers that are queued.
//
// It waits at Go's poller. Waiting in the kernel, which costs fewer system calls, was slower on 2 cores for all but a lone payload: an
// 8-byte write took 60 to 80 µs for 41 to 45, since leaving a long system call takes Go longer than leaving its poller, and
// 128 x 1 MiB moved at 0.82 to 0.90 of plain sockets for 0.93, since a thread in a system call keeps its processor.
func (l *link) recv(iov []sys.Iovec, want uint64) (n int, err error) {
	in := &l.in
	if l.ep.fate.isEnded() {
		return 0, errEnded
	}
	err = syscall.EAGAIN
	if !in.drained {
		n, err = sys.Recvv(l.fd, iov, syscall.MSG_DONTWAIT)
	}
	if err == syscall.EAGAIN {
		l.kick()
		in.arg = iov
		if err = l.raw.Read(in.try); err == nil {
			n, err = in.tryN, in.err
		}
	}
	switch {
	case err != nil:
		return 0, l.lost(err)
	case n == 0:
		return 0, l.lost(io.EOF)
	}
	in.drained = uint64(n) < min(want, maxMsg)
	return n, nil
}

// lost is the end of the socket as the error of its ops.
func (l *link) lost(err error) error {
	switch err {
	case io.EOF:
		return fmt.Errorf("connection closed by %s: %w", l.ep.peer, fabric.ErrConnReset)
	case syscall.EFAULT:
		return fmt.Errorf("receive from %s: memory of an op or region is gone: %w", l.ep.peer, fabric.ErrInvalid)
	case syscall.ECONNRESET:
		return fmt.Errorf("connection to %s broke: %w", l.ep.peer, fabric.ErrConnReset)
	}
	return fmt.Errorf("connection to %s broke: %v: %w", l.ep.peer, err, fabric.ErrConnReset)
}

// discardRest reads until the peer closes, so that our goodbye is not lost in a reset. The end of the socket on this
// side bounds it.
func (l *link) discardRest() {
	l.in.arg = []sys.Iovec{{Addr: sys.AddrOf(l.in.buf), Len: stagingLen}}
	for l.raw.Read(l.in.try) == nil && l.in.err == nil && l.in.tryN > 0 {
	}
}
