// SPDX-License-Identifier: MIT

package stream

import (
	"fmt"
	"syscall"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
)

const (
	// arenaLen is the room for headers, tables and small payloads of one batch.
	arenaLen = 64 << 10
	// copyMax is up to where payload is copied beside its header: one entry instead of two, and no page to pin down.
	copyMax = 4 << 10
	// batchBytes is where a batch ends. Acks wait for no more than that.
	batchBytes = 1 << 20
	// inlineMax is how much a submitter sends itself. Beyond it the copying belongs on the link's goroutine.
	inlineMax = 64 << 10
	// keepEntries is how long a list of segments may grow and still be kept for the next frame.
	keepEntries = 8 << 10
)

// A pump turns jobs into calls of sendmsg. It is used by one goroutine at a time.
type pump struct {
	batch []job
	arena []byte // never grows: entries of iov point into it
	iov   []sys.Iovec
	rest  []sys.Iovec // the end of iov: what is not sent
	bytes uint64      // of the batch
	acks  []frame.Ack
	big   [][]byte // tables that did not fit the arena
	pack  *packer  // nil if nothing is packed

	searched bool         // for memory of the batch that cannot be read
	page     [1]sys.Iovec // scratch

	try   func(fd uintptr) bool // for RawConn.Write
	tried int
	err   error
}

func (p *pump) init() {
	p.try = func(fd uintptr) bool {
		p.tried, p.err = sys.Sendv(int(fd), p.rest, syscall.MSG_DONTWAIT)
		return p.err != syscall.EAGAIN
	}
}

// pump sends until nothing is queued, with busy set by the caller. Inline it gives up when it would have to wait or has sent
// its share, and leaves the rest to the writer.
func (l *link) pump(inline bool) {
	p, budget := &l.out, uint64(inlineMax)
	for {
		if len(p.rest) == 0 {
			l.settle()
			more, err := l.fill(inline)
			if err != nil {
				l.broken(err)
				return
			}
			if !more {
				return
			}
			if inline && p.bytes > budget && !l.in.lent.Load() {
				l.handOver()
				return
			}
			budget -= min(budget, p.bytes)
			if len(p.rest) == 0 {
				continue // all of it is lost
			}
		}
		n, err := l.send(p.rest)
		if err == syscall.EFAULT && l.wire == nil {
			n, err = l.sendAroundFault()
		}
		if err == syscall.EAGAIN {
			if l.wire != nil {
				if l.stall() {
					return
				}
				continue
			}
			if inline {
				if !l.park() {
					l.handOver()
				}
				return
			}
			if n, err = l.waitAndSend(); err == syscall.EFAULT {
				continue // the next try finds where
			}
		}
		if err != nil {
			l.broken(err)
			return
		}
		p.rest = sys.Advance(p.rest, uint64(n))
	}
}

// waitAndSend sends once the socket has room.
func (l *link) waitAndSend() (int, error) {
	if err := l.raw.Write(l.out.try); err != nil {
		return 0, err
	}
	return l.out.tried, l.out.err
}

// broken ends the connection from the write side. busy stays set, so nobody pumps again.
func (l *link) broken(err error) {
	l.stop()
	switch err {
	case syscall.EPIPE, syscall.ECONNRESET:
		// The reader sees the same end of the socket, and may find a goodbye before it.
	case syscall.EFAULT:
		l.ep.Fail(fmt.Errorf("send to %s: memory of another op was freed while it was sent: %w", l.ep.peer, fabric.ErrConnReset))
	default:
		l.ep.Fail(fmt.Errorf("send to %s: %v: %w", l.ep.peer, err, fabric.ErrConnReset))
	}
}

// settle ends the jobs of a batch that was sent.
func (l *link) settle() {
	p := &l.out
	for i := range p.batch {
		j := &p.batch[i]
		l.queued.Add(-int64(j.h.PayloadLen()))
		switch {
		case j.reply != nil:
			l.endReply(j.reply)
		case j.lost:
			l.ep.unsent(j)
		case j.slot != nil && j.h.Kind != frame.KindOffer: // an offer's memory is read by its body
			if j.slot.mark(slotWritten) {
				l.ep.complete(j.slot)
			}
		case j.h.Kind == frame.KindGoodbye && l.wire == nil:
			// Two that say goodbye at once read nothing any more but the end, which each of them would wait for.
			_ = syscall.Shutdown(l.fd, syscall.SHUT_WR)
		case j.h.Kind == frame.KindExtension:
			l.ep.extra.Add(-int64(len(j.body)))
		}
		*j = job{}
	}
	clear(p.big)
	p.batch, p.big = p.batch[:0], p.big[:0]
	p.pack.release()
}

// unsent ends an op whose frame was not sent.
func (ep *Endpoint) unsent(j *job) {
	s := j.slot
	if j.h.Kind == frame.KindSend {
		ep.mu.Lock()
		ep.sent -= s.n + eagerCost
		ep.mu.Unlock()
	}
	s.errno, s.detail = unreadable, unreadableText
	s.mark(slotWritten)
	if s.mark(slotAnswered) {
		ep.complete(s)
	}
}

// fill makes the next batch. It reports false if there is nothing to send, with busy reset, or nothing to send inline, and told the writer.
func (l *link) fill(inline bool) (bool, error) {
	p := &l.out
	if p.arena == nil {
		p.arena = make([]byte, 0, arenaLen)
	}
	p.arena, p.iov, p.bytes, p.searched = p.arena[:0], p.iov[:0], 0, false
	if cap(p.iov) > keepEntries {
		p.iov = nil
	}
	l.mu.Lock()
	if l.jobs.Len() == 0 && len(l.acks) == 0 || l.stopped {
		l.busy = false
		l.mu.Unlock()
		return false, nil
	}
	n := min(len(l.acks), frame.MaxAcks)
	p.acks = append(p.acks[:0], l.acks[:n]...)
	l.acks = l.acks[:copy(l.acks, l.acks[n:])]
	packs := l.takeJobs(arenaLen-frame.HeaderLen-n*frame.AckLen, inline)
	l.mu.Unlock()
	switch {
	case packs && !inline:
		p.pack.pack(&p.batch[len(p.batch)-1])
	case packs && len(p.batch) == 0 && n == 0:
		l.handOver()
		return false, nil
	}
	return true, p.encode()
}

// takeJobs moves jobs to the batch, whose arena has so much room. It reports true if it stopped at one that is to be packed: that is the last one of the
// batch, or inline the next one in the queue, since packing is the writer's work. With l.mu held.
func (l *link) takeJobs(room int, inline bool) (packs bool) {
	p, entries := &l.out, 1
	for l.jobs.Len() > 0 && p.bytes < batchBytes && entries < sys.IovMax {
		j := l.jobs.Peek()
		need := j.arenaNeed()
		if need > room && len(p.batch) > 0 {
			return false
		}
		packs = p.pack.due(j)
		if packs && inline {
			return true
		}
		p.batch = append(p.batch, l.jobs.Pop())
		j = &p.batch[len(p.batch)-1]
		room -= need
		entries += j.entries()
		p.bytes += j.h.PayloadLen()
		if packs {
			return true
		}
	}
	return false
}

// encode writes the frames of the batch.
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

// A mark is how far a batch is.
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

// rewind takes back what came after m.
func (p *pump) rewind(m mark) {
	clear(p.big[m.big:])
	p.arena, p.iov, p.big = p.arena[:m.arena], p.iov[:m.iov], p.big[:m.big]
	if m.iov > 0 {
		p.iov[m.iov-1].Len = m.last
	}
}

// grow returns the next n bytes of the arena, which become part of the batch. What is too large for the arena gets memory
// of its own: a table of thousands of segments.
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
