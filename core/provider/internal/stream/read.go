// SPDX-License-Identifier: MIT

package stream

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/staging"
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

// readLoop takes frames until the connection ends.
func (l *link) readLoop() {
	defer l.ep.fate.readers.Done()
	err := l.read()
	switch {
	case l.ep.fate.isEnded():
		l.discardRest()
	case l.in.goodbye && errors.Is(err, fabric.ErrConnReset):
		l.ep.awaitWire() // and the other links end by their own goodbyes
	default:
		l.ep.Fail(err)
	}
}

// read turns the reader whenever it can go on.
//
// It waits at Go's poller. Waiting in the kernel, which costs fewer system calls, was slower on 2 cores for all but a lone payload: an
// 8-byte write took 60 to 80 µs for 41 to 45, since leaving a long system call takes Go longer than leaving its poller, and
// 128 x 1 MiB moved at 0.82 to 0.90 of plain sockets for 0.93, since a thread in a system call keeps its processor.
func (l *link) read() error {
	for {
		if err := l.raw.Read(l.in.try); err != nil {
			return l.lost(err)
		}
		switch l.in.result {
		case errNoRoom:
			l.kick()
			select {
			case <-l.ep.inbox.space:
			case <-l.ep.fate.over:
				return errEnded
			}
		case errNoBuffer:
			l.kick()
			select {
			case <-time.After(staging.LastPause):
			case <-l.ep.fate.over:
				return errEnded
			}
		case errLent:
			l.lend()
		default:
			return l.in.result
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
		room := stagingLen - in.w
		if in.phase == phaseTable { // the payload behind it goes to its own place
			room = min(room, in.left*frame.SegmentLen-(in.w-in.r)+tailLen)
		}
		in.iov = append(in.iov[:0], sys.Iovec{Addr: sys.AddrOf(in.buf) + uint64(in.w), Len: uint64(room)})
		m, err := l.recv(in.iov, uint64(room))
		if err != nil {
			return err
		}
		in.w += m
	}
	return nil
}

// payload fills dst, and then takes what is to be dropped.
func (l *link) payload() error {
	in := &l.in
	for in.want > 0 || in.drop > 0 {
		if in.want == 0 {
			in.own = true
			if in.trash == nil {
				in.trash = make([]byte, trashLen)
			}
			in.want = min(in.drop, trashLen)
			in.drop -= in.want
			in.dst = append(in.scratch(1), sys.Iovec{Addr: sys.AddrOf(in.trash), Len: in.want})
		}
		if err := l.receive(); err != nil {
			return err
		}
	}
	in.trash, in.dst = nil, nil
	return nil
}

// loseMemory drops what is left of a payload whose memory cannot be written: the op or region is freed, and the connection is not.
func (in *reader) loseMemory() {
	in.gone = true
	in.drop += in.want
	in.want, in.dst = 0, nil
}

// receive fills dst, whose entries it changes.
func (l *link) receive() error {
	in := &l.in
	for in.want > 0 {
		in.dst = sys.Advance(in.dst, 0)
		if in.r < in.w {
			m := min(int(in.want), in.w-in.r)
			if in.summing() {
				in.sum = frame.Checksum(in.sum, in.buf[in.r:in.r+m])
			}
			in.one[0] = sys.Iovec{Addr: sys.AddrOf(in.buf[in.r:]), Len: uint64(m)}
			in.r += m
			in.want -= uint64(m)
			if !in.unstage(uint64(m)) {
				in.loseMemory()
				return nil
			}
			continue
		}
		in.r, in.w = 0, 0
		tail := uint64(stagingLen)
		if in.summing() && in.want <= tailLen { // small ones are summed before they lie where other ops may write
			in.one[0] = sys.Iovec{Addr: sys.AddrOf(in.buf), Len: tail}
			m, err := l.recv(in.one[:], tail)
			if err != nil {
				return err
			}
			in.w = m
			continue
		}
		if in.want > stagingLen {
			tail = tailLen
		}
		m, err := l.recv(append(in.dst, sys.Iovec{Addr: sys.AddrOf(in.buf), Len: tail}), in.want+tail)
		if err == syscall.EFAULT { // nothing was taken from the socket
			in.loseMemory()
			return nil
		}
		if err != nil {
			return err
		}
		fault := in.arrived(min(uint64(m), in.want)) != nil
		if uint64(m) > in.want {
			in.w = m - int(in.want)
			in.want = 0
			in.gone = in.gone || fault
			return nil
		}
		in.want -= uint64(m)
		in.dst = sys.Advance(in.dst, uint64(m))
		if fault {
			in.loseMemory()
		}
	}
	return nil
}

// unstage copies the staged bytes in one to the first m bytes of dst, and moves dst on. It reports false if dst cannot be written.
func (in *reader) unstage(m uint64) bool {
	if in.own {
		return sys.Move(in.dst[0].Addr, in.one[0].Addr, m) == nil && in.advance(m)
	}
	in.parts = in.parts[:0]
	for left, i := m, 0; left > 0; i++ { // a copy of the entries, which the copy uses up
		v := in.dst[i]
		v.Len = min(v.Len, left)
		in.parts = append(in.parts, v)
		left -= v.Len
	}
	moved, err := sys.CopySelf(in.parts, in.one[:])
	return err == nil && uint64(moved) == m && in.advance(m)
}

func (in *reader) advance(m uint64) bool {
	in.dst = sys.Advance(in.dst, m)
	return true
}

// recv reads once into iov, which asks for want bytes or more. After a read that got less, answers go out before the next.
func (l *link) recv(iov []sys.Iovec, want uint64) (n int, err error) {
	in := &l.in
	if l.ep.fate.isEnded() {
		return 0, errEnded
	}
	if in.drained {
		return 0, errWait
	}
	if l.wire != nil {
		n, err = l.wire.Recv(iov)
	} else {
		n, err = sys.Recvv(l.fd, iov, syscall.MSG_DONTWAIT)
	}
	switch {
	case err == syscall.EAGAIN:
		return 0, errWait
	case err == syscall.EFAULT:
		return 0, err
	case err != nil:
		return 0, l.lost(err)
	case n == 0:
		return 0, l.lost(io.EOF)
	}
	in.got = true
	in.drained = uint64(n) < min(want, frame.MaxMsg)
	return n, nil
}

// lost is the end of the socket as the error of its ops.
func (l *link) lost(err error) error {
	switch err {
	case io.EOF:
		return fmt.Errorf("connection closed by %s: %w", l.ep.peer, fabric.ErrConnReset)
	case syscall.ECONNRESET:
		return fmt.Errorf("connection to %s broke: %w", l.ep.peer, fabric.ErrConnReset)
	}
	return fmt.Errorf("connection to %s broke: %v: %w", l.ep.peer, err, fabric.ErrConnReset)
}

// discardRest reads until the peer closes, so that our goodbye is not lost in a reset. The end of the socket on this
// side bounds it.
func (l *link) discardRest() {
	l.in.mu.Lock() // a poller may not have left yet
	defer l.in.mu.Unlock()
	arg := []sys.Iovec{{Addr: sys.AddrOf(l.in.buf), Len: stagingLen}}
	var n int
	var err error
	once := func(fd uintptr) bool {
		n, err = sys.Recvv(int(fd), arg, syscall.MSG_DONTWAIT)
		return err != syscall.EAGAIN
	}
	for l.raw.Read(once) == nil && err == nil && n > 0 {
	}
}
