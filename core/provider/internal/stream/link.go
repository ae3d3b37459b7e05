// SPDX-License-Identifier: MIT

package stream

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/queue"
	"mori/core/provider/internal/staging"
)

// A link is one socket of an endpoint with its two directions.
type link struct {
	ep    *Endpoint
	index int
	conn  net.Conn
	raw   syscall.RawConn
	fd    int // valid until conn.Close, which comes after every user of it has gone

	// Of a link that is no socket; see wire.go.
	wire  Wire
	room  atomic.Uint32
	news  chan struct{} // tells wireLoop to look
	waits atomic.Bool   // what came waits for the program

	queued atomic.Int64 // payload bytes of jobs that are not sent: for choosing a link

	mu       sync.Mutex // protects what follows
	jobs     queue.FIFO[job]
	acks     []frame.Ack
	spare    []*reply
	serving  []*reply // have their region open
	busy     bool     // somebody pumps, or the writer was told to
	parked   bool     // busy, and the next poller pumps on
	stopped  bool     // nothing is sent any more
	farewell bool     // the goodbye is queued: later jobs are dropped

	wake chan struct{} // tells the writer to pump
	out  pump          // belongs to who set busy
	in   reader

	// Credits of the peer's reads, spent by the reader and given back by the pump.
	readsIn   atomic.Int64
	entriesIn atomic.Int64

	// Credits of our reads. Guarded by Endpoint.mu.
	readsOut   int
	entriesOut int
	bytesOut   uint64
}

// A job is a frame to be sent.
type job struct {
	h     frame.Header
	slot  *slot  // whose table and payload go along
	reply *reply // whose payload goes along
	body  []byte // of an extension
	lost  bool   // it was not sent: its memory cannot be read
	at    layout // in the pump's batch
}

// A reply is the payload that a peer reads.
type reply struct {
	mr      *util.MR
	iov     []sys.Iovec
	entries int
	result  []byte // of atomic ops: where iov points

	// Of device memory: where iov points, and what the Stager's answer needs.
	buf    staging.Buffer
	link   *link
	ticket uint32
	flags  uint16
}

func newLink(ep *Endpoint, index int, conn net.Conn) (*link, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("use %T as a link: %w", conn, fabric.ErrInvalid)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("use connection to %v: %w", conn.RemoteAddr(), err)
	}
	l := &link{ep: ep, index: index, conn: conn, raw: raw, wake: make(chan struct{}, 1)}
	if err := raw.Control(func(fd uintptr) { l.fd = int(fd) }); err != nil {
		return nil, fmt.Errorf("use connection to %v: %w", conn.RemoteAddr(), err)
	}
	l.busy = true // until the handshake is over, nothing is sent
	l.initReader()
	l.out.init()
	return l, nil
}

// post queues a job. Somebody has to kick afterwards. After the goodbye there is nothing to send: the op ends with the connection.
func (l *link) post(j *job, payload uint64) {
	l.mu.Lock()
	drop := l.farewell
	if !drop {
		l.queued.Add(int64(payload))
		l.jobs.Push(*j)
	}
	l.mu.Unlock()
	if drop && j.reply != nil {
		l.endReply(j.reply)
	}
}

// kick sends what is queued, unless somebody is at it already.
func (l *link) kick() {
	l.mu.Lock()
	start := !l.busy && !l.stopped && (l.jobs.Len() > 0 || len(l.acks) > 0)
	l.busy = l.busy || start
	l.mu.Unlock()
	if start {
		l.pump(true)
	}
}

// ack queues the answer to a peer's op; the reader kicks when it has nothing better to do.
func (l *link) ack(ticket uint32, errno fabric.Errno) error {
	l.mu.Lock()
	l.acks = append(l.acks, frame.Ack{Ticket: ticket, Errno: errno})
	n := len(l.acks)
	l.mu.Unlock()
	if n > l.ep.peerTx {
		return frame.ProtocolErr("more than %d ops on their way", l.ep.peerTx)
	}
	return nil
}

// writer pumps where the submitter's goroutine must not wait, until the link stops.
func (l *link) writer() {
	defer l.ep.fate.writers.Done()
	for {
		select {
		case <-l.wake:
			l.pump(false)
		case <-l.ep.fate.quit:
			return
		}
	}
}

// handOver leaves the pump to the writer, with busy set: so the channel has room.
func (l *link) handOver() { l.wake <- struct{}{} }

// stop lets nobody begin to send. Whoever is sending is stopped by the socket's end.
func (l *link) stop() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
}

// newReply takes a reply from the spare ones.
func (l *link) newReply() *reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.spare); n > 0 {
		r := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return r
	}
	return &reply{}
}

// serve notes that r holds mr open.
func (l *link) serve(r *reply, mr *util.MR) {
	l.mu.Lock()
	r.mr = mr
	l.serving = append(l.serving, r)
	l.mu.Unlock()
}

// endReply lets go of the region, if r has one, and gives the read's credit back.
func (l *link) endReply(r *reply) {
	if r.mr != nil {
		r.mr.Release()
	}
	r.buf.Free()
	l.readsIn.Add(-1)
	l.entriesIn.Add(-int64(r.entries))
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.serving, r); i >= 0 {
		l.serving = slices.Delete(l.serving, i, i+1)
	}
	r.mr = nil
	if r.iov = r.iov[:0]; cap(r.iov) > keepEntries {
		r.iov = nil
	}
	if len(l.spare) < frame.MaxReads {
		l.spare = append(l.spare, r)
	}
}

// holds reports whether the peer's reads and writes on this link keep a region open.
func (l *link) holds(id uint64) bool {
	if mr := l.in.holds.Load(); mr != nil && mr.Key().ID == id {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.serving, func(r *reply) bool { return r.mr.Key().ID == id })
}
