// SPDX-License-Identifier: MIT

package socket

import (
	"fmt"
	"io"
	"syscall"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/sock"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/frame"
)

const (
	// stagingLen is the size of the buffer that headers, tables and small payloads arrive in. Each
	// read of a payload ends in this buffer, so that the same system call also reads the next
	// header.
	stagingLen = 16 << 10
	// tailLen is how much of that buffer the reads of a long payload use. Bytes that arrive here
	// are copied once more, and a long payload is usually followed by another one.
	tailLen = 1 << 10
	// trashLen is the size of the buffer for payload that is dropped.
	trashLen = 64 << 10
	// bufferPause is how long a reader waits before it retries to get a buffer for device memory.
	bufferPause = 200 * time.Microsecond
)

// Read reads frames until the connection ends, and returns the cause.
func (s *Stream) Read() error { return s.in.read() }

// read calls turn whenever it can make progress.
//
// It waits in Go's network poller. Waiting in the kernel needs fewer system calls, but on 2 cores
// it was slower for everything except a single payload. An 8-byte write took 60 to 80 µs instead of
// 41 to 45: Go needs longer to leave a long system call than to leave its poller. 128 x 1 MiB
// reached 0.82 to 0.90 of plain sockets instead of 0.93: a thread in a system call keeps its
// processor.
func (in *reader) read() error {
	for {
		if err := in.s.raw.Read(in.try); err != nil {
			return in.lost(err)
		}
		switch in.result {
		case ErrNoRoom:
			in.s.Kick()
			select {
			case <-in.s.env.Space:
			case <-in.s.env.Over:
				return ErrEnded
			}
		case ErrNoBuffer:
			in.s.Kick()
			select {
			case <-time.After(bufferPause):
			case <-in.s.env.Over:
				return ErrEnded
			}
		case errLent:
			in.lend()
		default:
			return in.result
		}
	}
}

// need ensures that n bytes lie in the staging buffer, starting at in.r.
func (in *reader) need(n int) error {
	if in.w-in.r >= n {
		return nil
	}
	in.w = copy(in.buf, in.buf[in.r:in.w])
	in.r = 0
	for in.w < n {
		room := stagingLen - in.w
		if in.phase == phaseTable { // read the payload after it straight to its destination
			room = min(room, in.left*frame.SegmentLen-(in.w-in.r)+tailLen)
		}
		in.iov = append(in.iov[:0], sys.Iovec{Addr: sys.AddrOf(in.buf) + uint64(in.w), Len: uint64(room)})
		m, err := in.recv(in.iov, uint64(room))
		if err != nil {
			return err
		}
		in.w += m
	}
	return nil
}

// payload fills Dst and then reads the bytes to drop.
func (in *reader) payload() error {
	for in.Want > 0 || in.Drop > 0 {
		if in.Want == 0 {
			in.Own = true
			if in.trash == nil {
				in.trash = make([]byte, trashLen)
			}
			in.Want = min(in.Drop, trashLen)
			in.Drop -= in.Want
			in.Dst = append(in.scratch(1), sys.Iovec{Addr: sys.AddrOf(in.trash), Len: in.Want})
		}
		if err := in.receive(); err != nil {
			return err
		}
	}
	in.trash, in.Dst = nil, nil
	return nil
}

// loseMemory drops the rest of a payload whose destination is not mapped. The op or region was
// freed; the connection stays open.
func (in *reader) loseMemory() {
	in.Gone = true
	in.Drop += in.Want
	in.Want, in.Dst = 0, nil
}

// receive fills Dst. It modifies the entries.
func (in *reader) receive() error {
	for in.Want > 0 {
		in.Dst = sys.Advance(in.Dst, 0)
		if in.r < in.w {
			m := min(int(in.Want), in.w-in.r)
			if in.summing() {
				in.sum = frame.Checksum(in.sum, in.buf[in.r:in.r+m])
			}
			in.one[0] = sys.Iovec{Addr: sys.AddrOf(in.buf[in.r:]), Len: uint64(m)}
			in.r += m
			in.Want -= uint64(m)
			if !in.s.reading.enter() {
				return ErrEnded
			}
			whole := in.unstage(uint64(m))
			if !in.s.reading.leave() {
				return ErrEnded
			}
			if !whole {
				in.loseMemory()
				return nil
			}
			continue
		}
		in.r, in.w = 0, 0
		tail := uint64(stagingLen)
		if in.summing() && in.Want <= tailLen { // checksum a small payload before other ops can overwrite it
			in.one[0] = sys.Iovec{Addr: sys.AddrOf(in.buf), Len: tail}
			m, err := in.recv(in.one[:], tail)
			if err != nil {
				return err
			}
			in.w = m
			continue
		}
		if in.Want > stagingLen {
			tail = tailLen
		}
		m, err := in.recv(append(in.Dst, sys.Iovec{Addr: sys.AddrOf(in.buf), Len: tail}), in.Want+tail)
		if err == syscall.EFAULT { // the kernel took nothing from the socket
			in.loseMemory()
			return nil
		}
		if err != nil {
			return err
		}
		fault := in.arrived(min(uint64(m), in.Want)) != nil
		if uint64(m) > in.Want {
			in.w = m - int(in.Want)
			in.Want = 0
			in.Gone = in.Gone || fault
			return nil
		}
		in.Want -= uint64(m)
		in.Dst = sys.Advance(in.Dst, uint64(m))
		if fault {
			in.loseMemory()
		}
	}
	return nil
}

// unstage copies the staged bytes to the first m bytes of Dst and advances Dst. It returns false if
// Dst cannot be written.
func (in *reader) unstage(m uint64) bool {
	if in.Own {
		if sys.Move(in.Dst[0].Addr, in.one[0].Addr, m) != nil {
			return false
		}
		in.Dst = sys.Advance(in.Dst, m)
		return true
	}
	in.parts = in.parts[:0]
	for left, i := m, 0; left > 0; i++ { // copy the entries: CopySelf modifies them
		v := in.Dst[i]
		v.Len = min(v.Len, left)
		in.parts = append(in.parts, v)
		left -= v.Len
	}
	moved, err := vm.CopySelf(in.parts, in.one[:])
	if err != nil || uint64(moved) != m {
		return false
	}
	in.Dst = sys.Advance(in.Dst, m)
	return true
}

// recv reads once into iov, asking for at least want bytes. After a read that got less, answers are
// sent before the next read.
func (in *reader) recv(iov []sys.Iovec, want uint64) (n int, err error) {
	if in.s.env.Ended.Load() {
		return 0, ErrEnded
	}
	if in.drained {
		return 0, ErrWait
	}
	if !in.s.reading.enter() {
		return 0, ErrEnded
	}
	switch {
	case in.s.wire != nil:
		n, err = in.s.wire.Recv(iov)
	case in.phase == phasePayload && !in.Own:
		in.s.touching.Lock()
		n, err = sock.Recvv(in.s.fd, iov, syscall.MSG_DONTWAIT)
		in.s.touching.Unlock()
	default:
		n, err = sock.Recvv(in.s.fd, iov, syscall.MSG_DONTWAIT)
	}
	if !in.s.reading.leave() {
		return 0, ErrEnded
	}
	switch {
	case err == syscall.EAGAIN:
		return 0, ErrWait
	case err == syscall.EFAULT:
		return 0, err
	case err != nil:
		return 0, in.lost(err)
	case n == 0:
		return 0, in.lost(io.EOF)
	}
	in.got = true
	in.drained = uint64(n) < min(want, frame.MaxMsg)
	return n, nil
}

// lost returns the end of the socket as the error of its ops.
func (in *reader) lost(err error) error {
	switch err {
	case io.EOF:
		return fmt.Errorf("connection closed by %s: %w", in.s.env.Peer, fabric.ErrConnReset)
	case syscall.ECONNRESET:
		return fmt.Errorf("connection to %s broke: %w", in.s.env.Peer, fabric.ErrConnReset)
	}
	return fmt.Errorf("connection to %s broke: %v: %w", in.s.env.Peer, err, fabric.ErrConnReset)
}

// DiscardRest reads until the peer closes, so that a reset does not discard our goodbye. It ends
// when this side shuts the socket down.
func (s *Stream) DiscardRest() {
	in := &s.in
	in.mu.Lock() // a poller may still be reading
	defer in.mu.Unlock()
	arg := []sys.Iovec{{Addr: sys.AddrOf(in.buf), Len: stagingLen}}
	var n int
	var err error
	once := func(fd uintptr) bool {
		n, err = sock.Recvv(int(fd), arg, syscall.MSG_DONTWAIT)
		return err != syscall.EAGAIN
	}
	for in.s.raw.Read(once) == nil && err == nil && n > 0 {
	}
}
