// SPDX-License-Identifier: MIT

package socket

import (
	"fmt"
	"syscall"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/pages"
	"mori/core/internal/sys/sock"
	"mori/core/provider/internal/frame"
)

const (
	// arenaLen is the size of the buffer for headers, tables and small payloads of one batch.
	arenaLen = 64 << 10
	// copyMax is the largest payload that is copied next to its header. That saves an entry, and no
	// page must be pinned.
	copyMax = 4 << 10
	// batchBytes bounds a batch, and thus how many bytes an ack waits behind.
	batchBytes = 1 << 20
	// inlineMax is how many bytes a submitter sends itself. The stream's goroutine copies and sends
	// the rest.
	inlineMax = 64 << 10
	// keepEntries is the largest capacity of a segment list that is kept for the next frame.
	keepEntries = 8 << 10
)

// A pump sends jobs with sendmsg. One goroutine uses it at a time.
type pump struct {
	s        *Stream
	batch    []Job
	arena    []byte // never grows: entries of iov point into it
	iov      []sys.Iovec
	rest     []sys.Iovec // the unsent tail of iov
	bytes    uint64      // of the batch
	acks     []frame.Ack
	big      [][]byte    // tables that did not fit the arena
	compress *Compressor // nil if nothing is compressed

	pages    pages.Map    // scratch
	searched bool         // the batch was searched for memory that cannot be read
	page     [1]sys.Iovec // scratch

	try   func(fd uintptr) bool // for RawConn.Write
	tried int
	err   error
}

func (p *pump) init(s *Stream) {
	p.s = s
	p.try = func(fd uintptr) bool {
		p.tried, p.err = sock.Sendv(int(fd), p.rest, syscall.MSG_DONTWAIT)
		return p.err != syscall.EAGAIN
	}
}

// pump sends until nothing is queued. The caller has set busy. If inline is set, pump stops when it
// would block or has sent inlineMax bytes, and leaves the rest to the writer.
func (p *pump) pump(inline bool) {
	budget := uint64(inlineMax)
	for {
		if len(p.rest) == 0 {
			p.settle()
			more, err := p.fill(inline)
			if err != nil {
				p.broken(err)
				return
			}
			if !more {
				return
			}
			if inline && p.bytes > budget && !p.s.in.lent.Load() {
				p.s.handOver()
				return
			}
			budget -= min(budget, p.bytes)
			if len(p.rest) == 0 {
				continue // every frame of the batch was lost
			}
		}
		may, locked := p.mayInline(inline)
		if !may {
			p.s.handOver()
			return
		}
		n, err := p.sendRest(locked)
		if err == syscall.EFAULT && p.s.wire == nil {
			if inline { // finding the faulty entry accesses the memory
				p.s.handOver()
				return
			}
			n, err = p.sendAroundFault()
		}
		if err == syscall.EAGAIN {
			if p.s.wire != nil {
				if p.stall() {
					return
				}
				continue
			}
			if inline {
				if !p.s.park() {
					p.s.handOver()
				}
				return
			}
			if n, err = p.waitAndSend(); err == syscall.EFAULT {
				continue // the next attempt finds the faulty entry
			}
		}
		if err == ErrEnded {
			return
		}
		if err != nil {
			p.broken(err)
			return
		}
		p.rest = sys.Advance(p.rest, uint64(n))
	}
}

// waitAndSend sends once the socket has room.
func (p *pump) waitAndSend() (int, error) {
	if !p.s.sending.enter() {
		return 0, ErrEnded
	}
	err := p.s.raw.Write(p.try)
	if !p.s.sending.leave() {
		return 0, ErrEnded
	}
	if err != nil {
		return 0, err
	}
	return p.tried, p.err
}

// broken ends the connection after a write error. busy stays set, so no goroutine pumps again.
func (p *pump) broken(err error) {
	p.s.stop()
	switch err {
	case syscall.EPIPE, syscall.ECONNRESET:
		// The reader sees the same end of the socket, possibly after a goodbye.
	case syscall.EFAULT:
		p.s.owner.Fail(fmt.Errorf("send to %s: memory of another op was freed while it was sent: %w", p.s.env.Peer, fabric.ErrConnReset))
	default:
		p.s.owner.Fail(fmt.Errorf("send to %s: %v: %w", p.s.env.Peer, err, fabric.ErrConnReset))
	}
}

// settle completes the jobs of a sent batch.
func (p *pump) settle() {
	for i := range p.batch {
		j := &p.batch[i]
		p.s.queued.Add(-int64(j.H.PayloadLen()))
		switch {
		case j.lost:
			p.s.owner.Unsent(j)
		case j.H.Kind == frame.KindGoodbye && p.s.wire == nil:
			// If both sides say goodbye at once, each only waits to read the end of the socket.
			// This shutdown lets the peer see it.
			_ = syscall.Shutdown(p.s.fd, syscall.SHUT_WR)
		default:
			p.s.owner.Written(j)
		}
		*j = Job{}
	}
	clear(p.big)
	p.batch, p.big = p.batch[:0], p.big[:0]
	p.compress.release()
}

// fill makes the next batch. It returns false if the queue is empty, after resetting busy, or if it
// left the queue to the writer.
func (p *pump) fill(inline bool) (bool, error) {
	if p.arena == nil {
		p.arena = make([]byte, 0, arenaLen)
	}
	p.arena, p.iov, p.bytes, p.searched = p.arena[:0], p.iov[:0], 0, false
	if cap(p.iov) > keepEntries {
		p.iov = nil
	}
	p.s.mu.Lock()
	if p.s.jobs.Len() == 0 && len(p.s.acks) == 0 || p.s.stopped {
		p.s.busy = false
		p.s.mu.Unlock()
		return false, nil
	}
	n := min(len(p.s.acks), frame.MaxAcks)
	p.acks = append(p.acks[:0], p.s.acks[:n]...)
	p.s.acks = p.s.acks[:copy(p.s.acks, p.s.acks[n:])]
	compresses := p.takeJobs(arenaLen-frame.HeaderLen-n*frame.AckLen, inline)
	p.s.mu.Unlock()
	switch {
	case compresses && !inline:
		p.compress.compress(&p.batch[len(p.batch)-1])
	case compresses && len(p.batch) == 0 && n == 0:
		p.s.handOver()
		return false, nil
	}
	return true, p.encode()
}

// takeJobs moves jobs to the batch, whose arena has room bytes left. It returns true if it stopped
// at a job to compress. That job is the last of the batch. If inline is set, it is still the next
// in the queue instead, since only the writer compresses and checksums. The caller holds Stream.mu.
func (p *pump) takeJobs(room int, inline bool) (compresses bool) {
	entries := 1
	for p.s.jobs.Len() > 0 && p.bytes < batchBytes && entries < sys.IovMax {
		j := p.s.jobs.Peek()
		need := j.arenaNeed()
		if need > room && len(p.batch) > 0 {
			return false
		}
		compresses = p.compress.due(j)
		if inline && (compresses || j.H.Flags&frame.FlagChecksum != 0 && j.H.PayloadLen() > 0) {
			return true // a checksum reads the payload, which may block on a page fault
		}
		p.batch = append(p.batch, p.s.jobs.Pop())
		j = &p.batch[len(p.batch)-1]
		room -= need
		entries += j.entries()
		p.bytes += j.H.PayloadLen()
		if compresses {
			return true
		}
	}
	return false
}

// encode encodes the frames of the batch.
func (p *pump) encode() error {
	if len(p.acks) > 0 {
		h := frame.Header{Kind: frame.KindAck, Count: uint32(len(p.acks))}
		head := p.grow(frame.HeaderLen)
		for _, a := range p.acks {
			b := p.grow(frame.AckLen)
			a.Put(b)
			h.TableChecksum = frame.Checksum(h.TableChecksum, b)
		}
		h.Put(head)
	}
	for i := range p.batch {
		if err := p.batch[i].encode(p); err != nil {
			return err
		}
	}
	p.rest = p.iov
	return nil
}

// A mark is a position in a batch.
type mark struct {
	arena, iov, big int
	last            uint64 // bytes of the last entry of iov
}

func (p *pump) mark() mark {
	m := mark{arena: len(p.arena), iov: len(p.iov), big: len(p.big)}
	if m.iov > 0 {
		m.last = p.iov[m.iov-1].Len
	}
	return m
}

// rewind removes everything after m from the batch.
func (p *pump) rewind(m mark) {
	clear(p.big[m.big:])
	p.arena, p.iov, p.big = p.arena[:m.arena], p.iov[:m.iov], p.big[:m.big]
	if m.iov > 0 {
		p.iov[m.iov-1].Len = m.last
	}
}

// grow returns the next n bytes of the arena, which become part of the batch. A table of thousands
// of segments that does not fit the arena gets its own allocation.
func (p *pump) grow(n int) []byte {
	b := p.room(n)
	p.add(sys.AddrOf(b), uint64(n))
	return b
}

func (p *pump) room(n int) []byte {
	if k := len(p.arena); k+n <= cap(p.arena) {
		p.arena = p.arena[:k+n]
		return p.arena[k : k+n]
	}
	b := make([]byte, n)
	p.big = append(p.big, b)
	return b
}

// add appends memory to the batch.
func (p *pump) add(addr, n uint64) {
	if n == 0 {
		return
	}
	if k := len(p.iov); k > 0 && p.iov[k-1].Addr+p.iov[k-1].Len == addr {
		p.iov[k-1].Len += n
		return
	}
	p.iov = append(p.iov, sys.Iovec{Addr: addr, Len: n})
}
