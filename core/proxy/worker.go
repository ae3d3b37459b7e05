// SPDX-License-Identifier: MIT

package proxy

import (
	"errors"
	"fmt"
	"runtime"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// The thread of a queue. A command passes: take (from the ring, checked) → ops → submit (to the endpoint) → reap (its completions) → retire
// (in the order of the ring), which frees its slot. All of it is this thread's alone.

// batch is how many ops are submitted, and completions read, at a time.
const batch = 64

// A flight is a command under way.
type flight struct {
	pe    uint32
	kind  kind
	word  uint8
	left  int // ops that have not ended, and one until all were made
	bytes uint64
	done  bool
}

// A course is what is done with a PE's commands.
type course struct {
	failed bool
	fence  bool // the next op to it waits for those before
	asked  int  // atomics that the PE was asked for, and has not answered
}

type worker struct {
	q      *Queue
	next   uint64 // position of the next command to take
	tail   uint64 // of the first that has not ended
	bytes  uint64 // under way
	ops    []fabric.Op
	made   uint64 // ops that were made and have not ended, submitted or not
	course []course
	pause  pause

	flights []flight
	atomics []fabric.Atomic
	held    command // was read from the ring, and waits for others to end; see holds
	holds   bool
	trouble uint64 // PEs that failed

	asks asks

	inOrder bool // a write that follows a write needs no fence
	piece   uint64
	gone    bool // the port is closed

	got   [batch]fabric.Completion
	entry fabric.ErrEntry
}

func (w *worker) init(q *Queue) {
	info := q.cfg.Port.Info
	l := &info.Limits
	w.q = q
	w.course = make([]course, len(q.cfg.Peers))
	w.flights = make([]flight, q.cfg.Slots)
	w.atomics = make([]fabric.Atomic, q.cfg.Slots)
	w.piece = l.MaxMsg
	if l.BestOp > 0 {
		w.piece = min(l.BestOp, l.MaxMsg)
	}
	if w.piece == 0 {
		w.piece = 1 << 30
	}
	w.inOrder = info.Order&fabric.OrderWAW != 0 && l.OrderWAW >= w.piece
	w.pause = pause{spin: q.cfg.Spin, most: q.cfg.Nap}
}

// run serves the queue until it is told to stop, and what is under way has ended.
func (w *worker) run() {
	runtime.LockOSThread() // it polls, and sleeps in the kernel
	defer runtime.UnlockOSThread()
	defer w.endDesk()
	for {
		stop := w.q.stop.Load()
		seen := w.q.news.Value.Load() // what comes after this ends a nap
		busy := w.turn(stop)
		if stop && w.made == 0 {
			w.publish() // with closedBit
			return
		}
		if busy {
			w.pause.work()
		} else {
			w.rest(seen)
		}
	}
}

// turn does what there is to do, and reports whether there was anything.
func (w *worker) turn(stop bool) bool {
	select {
	case pe := <-w.q.resets:
		w.reset(pe)
	default:
	}
	taken := 0
	if !stop {
		taken = w.takeSome()
	}
	taken += w.replies()
	sent := w.submit()
	ended := w.reap()
	if before := w.tail; w.retire() != before || stop {
		w.publish()
	}
	return taken+sent+ended > 0
}

// publish tells kernels how far it is.
func (w *worker) publish() {
	v := w.tail
	if w.trouble > 0 {
		v |= troubleBit
	}
	if w.q.stop.Load() || w.gone {
		v |= closedBit
	}
	sys.Store64(w.q.places.board, v)
}

// submit gives the endpoint what it takes and returns how many.
func (w *worker) submit() (sent int) {
	for sent < len(w.ops) {
		n, err := w.q.cfg.Port.ep.Submit(w.ops[sent:])
		sent += n
		if errors.Is(err, fabric.ErrAgain) {
			break
		}
		if err != nil { // of the first that is left
			w.land(w.ops[sent].Ctx, fmt.Errorf("submit: %w", err))
			sent++
		}
	}
	w.ops = w.ops[:copy(w.ops, w.ops[sent:])]
	return sent
}

// reap reads completions.
func (w *worker) reap() (ended int) {
	cq := w.q.cfg.Port.cq
	for !w.gone {
		n, err := cq.Read(w.got[:])
		for i := range w.got[:n] {
			if w.got[i].Kind == fabric.OpRemoteWrite {
				w.notified(w.got[i].Data)
				continue
			}
			w.land(w.got[i].Ctx, nil)
		}
		ended += n
		switch {
		case errors.Is(err, fabric.ErrAvail):
			if err := cq.ReadErr(&w.entry); err == nil {
				e := w.entry
				w.land(e.Ctx, &e)
				ended++
			}
		case errors.Is(err, fabric.ErrClosed):
			ended++
			w.abandon()
		case err != nil || n == 0:
			return ended
		}
	}
	return ended
}

// abandon ends all that is under way: the port is closed, and no byte of it can move any more.
func (w *worker) abandon() {
	w.gone, w.ops = true, nil
	for p := w.tail; p != w.next; p++ {
		if f := w.flight(p); !f.done && f.left > 0 {
			w.fail(f.pe, ErrClosed)
			w.finish(p, f)
		}
	}
	w.made = 0
	w.publish()
}

func (w *worker) slot(position uint64) uint64 { return position & uint64(len(w.flights)-1) }

func (w *worker) flight(position uint64) *flight { return &w.flights[w.slot(position)] }

// land ends one op of the command at a position.
func (w *worker) land(position uint64, err error) {
	if position&answerCtx != 0 {
		w.made--
		if err != nil {
			w.fail(uint32(position&^answerCtx), fmt.Errorf("answer: %w", closed(err)))
		}
		return
	}
	f := w.flight(position)
	if err != nil {
		w.fail(f.pe, fmt.Errorf("%v of %d bytes: %w", f.kind, f.bytes, closed(err)))
	}
	w.made--
	if f.left--; f.left == 0 {
		w.finish(position, f)
	}
}

// closed is ErrClosed in place of what an endpoint says that closes: nobody cancels ops of a port but who closes it.
func closed(err error) error {
	if errors.Is(err, fabric.ErrCanceled) || errors.Is(err, fabric.ErrClosed) {
		return fmt.Errorf("%v: %w", err, ErrClosed)
	}
	return err
}

// finish ends a command.
func (w *worker) finish(position uint64, f *flight) {
	if f.kind == kindFetch {
		at := w.q.places.results + w.slot(position)*resultBytes
		if f.word == 4 {
			sys.Store64(at, uint64(sys.Load32(at)))
		}
		sys.Store64(at+8, position+1)
	}
	w.bytes -= f.bytes
	f.left, f.done = 0, true
}

// retire frees the slots of what has ended, in the order of the ring.
func (w *worker) retire() (tail uint64) {
	for w.tail != w.next && w.flight(w.tail).done {
		w.flight(w.tail).done = false
		w.tail++
	}
	return w.tail
}

// fail makes a PE take no more.
func (w *worker) fail(pe uint32, err error) {
	w.q.stats.failed.Add(1)
	if int(pe) >= len(w.course) || w.course[pe].failed {
		return
	}
	err = fmt.Errorf("proxy, PE %d over %s: %w", pe, w.q.cfg.Port.Info.Provider, err)
	w.course[pe].failed = true
	w.trouble++
	w.q.errors[pe].Store(&err)
	sys.Store32(w.q.places.status+4*uint64(pe), statusOf(err))
	w.dropAsks(pe)
}

// statusOf is what kernels see of an error.
func statusOf(err error) uint32 {
	for e := err; e != nil; {
		if n, ok := e.(fabric.Errno); ok && n > 0 {
			return uint32(n)
		}
		if e = errors.Unwrap(e); e == nil {
			break
		}
	}
	if errors.Is(err, ErrClosed) {
		return uint32(fabric.ErrClosed)
	}
	return uint32(fabric.ErrOther)
}

// reset lets a PE take commands again.
func (w *worker) reset(pe int) {
	if c := &w.course[pe]; c.failed {
		c.failed = false
		w.trouble--
		w.q.errors[pe].Store(nil)
		sys.Store32(w.q.places.status+4*uint64(pe), 0)
		w.publish()
	}
}
