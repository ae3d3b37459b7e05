// SPDX-License-Identifier: MIT

package socket

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/queue"
)

// An Owner handles the frames of a Stream. The Stream calls Begin and Finish from one goroutine at
// a time, and the other methods from any goroutine.
type Owner interface {
	// Begin handles the header and table of a frame and sets where its payload goes. After ErrWait,
	// ErrNoRoom, ErrNoBuffer or ErrBehind, the Stream waits and calls it again. Any other error
	// ends the connection.
	Begin(in *Incoming) error
	// Finish handles a frame whose payload has been received. Its errors are those of Begin.
	Finish(in *Incoming) error

	// Written is called when a frame was handed to the kernel. Its memory is no longer read.
	Written(j *Job)
	// Unsent is called when a frame was not sent because its memory cannot be read.
	Unsent(j *Job)
	// Unreadable is called when the memory of a frame cannot be read, and the peer will still
	// answer the operation or the connection will end.
	Unreadable(j *Job)
	// Dropped is called for a reply that is not sent because the connection is ending.
	Dropped(j *Job)

	// Fail ends the connection.
	Fail(err error)
}

// An Env has what the streams of one connection share. It is constant once they start.
type Env struct {
	Peer      fabric.Addr
	PeerTx    int             // operations that the peer may have pending
	PeerFault bool            // the peer takes frames with FlagTrailer and FlagVoid
	Ended     *atomic.Bool    // set when the connection ends
	Over      <-chan struct{} // closed when the connection ends
	Quit      <-chan struct{} // closed when writers must return
	Space     <-chan struct{} // signaled when a completion queue has room again
}

// A Stream is one byte stream of a connection with its two directions: a socket, or a Wire.
type Stream struct {
	owner Owner
	env   *Env
	raw   syscall.RawConn
	ends

	// For a stream that is not a socket; see wire.go.
	wire  Wire
	room  atomic.Uint32
	news  chan struct{} // wakes ReadWire
	waits atomic.Bool   // arrived bytes wait for the program

	queued atomic.Int64 // payload bytes of jobs that are not sent

	mu       sync.Mutex // protects what follows
	jobs     queue.FIFO[Job]
	acks     []frame.Ack
	busy     bool // a goroutine pumps, or the writer was woken
	parked   bool // busy, and the next poller continues to pump
	stopped  bool // no more frames are sent
	farewell bool // the goodbye is queued: later jobs are dropped

	wake chan struct{} // wakes the writer to pump
	out  pump          // used by the goroutine that set busy
	in   reader
}

// A Job is a frame to be sent.
type Job struct {
	H      frame.Header
	ID     int        // of Op, for the Owner
	Op     *fabric.Op // the op whose table and payload are sent
	Inject []byte     // the bytes of an OpInject op
	Reply  Reply      // the reply whose payload is sent
	Body   []byte     // the body of an extension frame

	lost bool   // not sent because its memory cannot be read
	at   layout // position in the pump's batch
}

// A Reply is the payload of one read of the peer.
type Reply interface{ Iovecs() []sys.Iovec }

// New makes a stream over a socket. It sends nothing before Open.
func New(owner Owner, env *Env, conn net.Conn) (*Stream, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("use %T as a stream: %w", conn, fabric.ErrInvalid)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("use connection to %v: %w", conn.RemoteAddr(), err)
	}
	s := newStream(owner, env)
	s.conn, s.raw, s.busy = conn, raw, true
	if err := raw.Control(func(fd uintptr) { s.fd = int(fd) }); err != nil {
		return nil, fmt.Errorf("use connection to %v: %w", conn.RemoteAddr(), err)
	}
	return s, nil
}

func newStream(owner Owner, env *Env) *Stream {
	s := &Stream{owner: owner, env: env, ends: ends{fd: -1}, wake: make(chan struct{}, 1)}
	s.in.init(s)
	s.out.init(s)
	return s
}

// Compress makes the stream compress payload with c, which may be nil.
func (s *Stream) Compress(c *Compressor) { s.out.compress = c }

// Open allows frames to be sent. Call it before Read, or the answer to the first frame would not be
// sent.
func (s *Stream) Open() {
	s.mu.Lock()
	s.busy = false
	s.mu.Unlock()
}

// Queued returns how many bytes of payload are waiting to be sent.
func (s *Stream) Queued() int64 { return s.queued.Load() }

// Post queues a job. The caller kicks afterwards. Once the goodbye is queued, Post drops the job:
// its operation ends with the connection.
func (s *Stream) Post(j *Job, payload uint64) {
	s.mu.Lock()
	drop := s.farewell
	if !drop {
		s.queued.Add(int64(payload))
		s.jobs.Push(*j)
	}
	s.mu.Unlock()
	if drop && j.Reply != nil {
		dropped := *j // a copy, so that j stays on the caller's stack in other cases
		s.owner.Dropped(&dropped)
	}
}

// Kick sends what is queued, unless another goroutine is already sending.
func (s *Stream) Kick() {
	s.mu.Lock()
	start := !s.busy && !s.stopped && (s.jobs.Len() > 0 || len(s.acks) > 0)
	s.busy = s.busy || start
	s.mu.Unlock()
	if start {
		s.out.pump(true)
	}
}

// Ack queues the answer to an operation of the peer. The reader kicks when it has nothing else to
// read.
func (s *Stream) Ack(ticket uint32, errno fabric.Errno) error {
	s.mu.Lock()
	s.acks = append(s.acks, frame.Ack{Ticket: ticket, Errno: errno})
	n := len(s.acks)
	s.mu.Unlock()
	if n > s.env.PeerTx {
		return frame.ProtocolErr("more than %d pending operations of %s", s.env.PeerTx, s.env.Peer)
	}
	return nil
}

// Write sends what Kick leaves, until Env.Quit is closed.
func (s *Stream) Write() {
	for {
		select {
		case <-s.wake:
			s.out.pump(false)
		case <-s.env.Quit:
			return
		}
	}
}

// handOver leaves the pump to the writer, with busy set. Since busy is set, the channel has room.
func (s *Stream) handOver() { s.wake <- struct{}{} }

// stop prevents goroutines from starting to send.
func (s *Stream) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
}

// Shutdown prevents goroutines from starting to send and shuts the socket down for those that are
// sending or receiving. It does not wait for them.
func (s *Stream) Shutdown() {
	s.stop()
	s.ends.shutdown()
}

// Farewell replaces all jobs that were not started with the last frames, and sends as much as it
// can.
func (s *Stream) Farewell(last ...Job) {
	s.dropJobs()
	s.mu.Lock()
	for _, j := range last {
		s.queued.Add(int64(j.H.PayloadLen()))
		s.jobs.Push(j)
	}
	s.farewell = true
	s.mu.Unlock()
	s.Kick()
}

// Close drops what was not sent and closes the socket. Call it after Shutdown, when no other
// goroutine uses s.
func (s *Stream) Close() {
	s.dropJobs()
	for i := range s.out.batch {
		if j := &s.out.batch[i]; j.Reply != nil {
			s.owner.Dropped(j)
		}
	}
	s.out.batch = nil
	s.in.zstd.Free()
	s.in.zstd = nil
	s.ends.close()
}

// dropJobs drops the frames that were not started.
func (s *Stream) dropJobs() {
	s.mu.Lock()
	jobs := s.jobs
	s.jobs = queue.FIFO[Job]{}
	s.mu.Unlock()
	for jobs.Len() > 0 {
		if j := jobs.Pop(); j.Reply != nil {
			s.owner.Dropped(&j)
		}
	}
}
