// SPDX-License-Identifier: MIT

package proxy

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/memory"
	"mori/native/abi"
)

// A Queue is a ring that kernels post to, with the thread that serves it.
type Queue struct {
	cfg    Config
	log    int
	held   func() error // releases the Memory's hold
	shared span         // ring, details, results, board, status, and the host's own words
	own    span         // words of kernels
	places places
	words  Region // operands and results

	worker worker
	local  atomic.Pointer[[]Local]
	errors []atomic.Pointer[error] // by PE: the first error
	resets chan int

	stop    atomic.Bool
	news    memory.ParkWord // changes when there may be work
	ended   chan struct{}
	closing sync.Mutex
	closed  bool
	stats   counters
}

// places are the areas shared by kernels and the host, and the operands, which only the host uses.
type places struct {
	ring     []abi.ProxyCommand
	details  []abi.ProxyDetail
	results  []abi.ProxyResult
	operands []operands
	board    *abi.ProxyBoard
	status   []uint32 // by PE
}

// operands are the words of a pending atomic: the operand and the compare value.
type operands struct{ value, compare uint64 }

// A plan has the offsets of the areas in shared memory.
type plan struct{ ring, details, results, operands, board, status, end uint64 }

// areaAlign keeps areas on separate lines, so that the two sides never write the same line.
const areaAlign = 128

func planOf(slots, peers int) plan {
	n := uint64(slots)
	var p plan
	at := uint64(0)
	take := func(size uint64) (begin uint64) {
		begin = at
		at = (at + size + areaAlign - 1) / areaAlign * areaAlign
		return begin
	}
	p.board = take(abi.ProxyBoardBytes)
	p.ring = take(n * abi.ProxyCommandBytes)
	p.details = take(n * abi.ProxyDetailBytes)
	p.results = take(n * abi.ProxyResultBytes)
	p.operands = take(n * operandBytes)
	p.status = take(4 * uint64(peers))
	p.end = at
	return p
}

const operandBytes = 2 * 8

// placesOf returns the areas of a plan at an address.
func placesOf(p plan, at uint64, slots, peers int) places {
	return places{
		ring: sys.Slice[abi.ProxyCommand](at+p.ring, slots), details: sys.Slice[abi.ProxyDetail](at+p.details, slots),
		results: sys.Slice[abi.ProxyResult](at+p.results, slots), operands: sys.Slice[operands](at+p.operands, slots),
		board: &sys.Slice[abi.ProxyBoard](at+p.board, 1)[0], status: sys.Slice[uint32](at+p.status, peers),
	}
}

// New creates a queue and starts serving it.
func New(cfg Config) (*Queue, error) {
	q, err := build(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.AtomicServer != nil {
		q.worker.executor = newExecutor(cfg.Atomics, &q.stop, q.nudge)
	}
	cfg.Port.cq.OnReady(q.nudge)
	go q.worker.run()
	return q, nil
}

// build creates a queue without starting its thread.
func build(cfg Config) (_ *Queue, err error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	q := &Queue{cfg: cfg, log: bits.TrailingZeros(uint(cfg.Slots)),
		resets: make(chan int, 16), ended: make(chan struct{}), errors: make([]atomic.Pointer[error], len(cfg.Peers))}
	q.local.Store(&q.cfg.Local)
	defer func() {
		if err != nil {
			err = errors.Join(err, q.free())
		}
	}()
	if q.held, err = cfg.Memory.hold(); err != nil {
		return nil, err
	}
	p := planOf(cfg.Slots, len(cfg.Peers))
	if q.shared, err = cfg.Memory.shared(int(p.end)); err != nil {
		return nil, fmt.Errorf("make a ring of %d slots: %w", cfg.Slots, err)
	}
	h := q.shared.host
	q.places = placesOf(p, h, cfg.Slots, len(cfg.Peers))
	words := fabric.Buffer{Addr: h + p.results, Len: p.operands + uint64(cfg.Slots)*operandBytes - p.results}
	q.words, err = cfg.Port.Register(words)
	if err != nil {
		return nil, err
	}
	describe := func(at uint64) []byte { return q.describe(p, at) }
	if q.own, err = cfg.Memory.private(busyAt+4*cfg.Slots, describe); err != nil {
		return nil, fmt.Errorf("make the words of a ring of %d slots: %w", cfg.Slots, err)
	}
	q.worker.init(q)
	return q, nil
}

// The words of kernels: the queue's description, State, and a 4-byte word per slot.
const (
	stateAt = (abi.ProxyQueueBytes + areaAlign - 1) / areaAlign * areaAlign
	busyAt  = stateAt + abi.ProxyStateBytes
)

// describe returns the queue's description for kernels, whose words are at own.
func (q *Queue) describe(p plan, own uint64) []byte {
	d := q.shared.device
	return abi.Bytes(&abi.ProxyQueue{
		Version: abi.ProxyQueueVersion, Log: uint32(q.log), PEs: uint32(len(q.cfg.Peers)),
		Ring: d + p.ring, Details: d + p.details, Results: d + p.results, Board: d + p.board, Status: d + p.status,
		State: own + stateAt, Busy: own + busyAt, Local: q.cfg.Local[0].at(), WaitLimit: uint64(q.cfg.Wait),
	})
}

// Device returns the address of the queue for kernels.
func (q *Queue) Device() uint64 { return q.own.device }

// SetLocal replaces the memory that commands may use. The first memory must not move, because
// kernels have its address.
func (q *Queue) SetLocal(all []Local) error {
	if len(all) == 0 || all[0].at() != q.cfg.Local[0].at() {
		return fmt.Errorf("the first local region moved: %w", ErrConfig)
	}
	q.local.Store(&all)
	return nil
}

// Err returns why a PE accepts no more commands, nil if it does.
func (q *Queue) Err(pe int) error {
	if pe < 0 || pe >= len(q.errors) {
		return fmt.Errorf("PE %d of %d: %w", pe, len(q.errors), ErrConfig)
	}
	if err := q.errors[pe].Load(); err != nil {
		return *err
	}
	return nil
}

// Reset enables a PE after an error, for new commands.
func (q *Queue) Reset(pe int) error {
	if pe < 0 || pe >= len(q.errors) {
		return fmt.Errorf("reset PE %d of %d: %w", pe, len(q.errors), ErrConfig)
	}
	select {
	case <-q.ended:
		return ErrClosed
	default:
	}
	select {
	case q.resets <- pe:
	case <-q.ended:
		return ErrClosed
	}
	q.nudge()
	return nil
}

// A Report describes a kernel's wait that timed out.
type Report struct {
	Ticket, Ended uint64 // the command that it waited for, and the number of completed ones
	PE            uint32
	Count         uint32 // number of such waits; the other fields describe the first
}

// Report returns the report of waits that timed out; false if there is none.
func (q *Queue) Report() (Report, bool) {
	r := &q.places.board.Report
	if atomic.LoadUint32(&r.Ready) == 0 {
		return Report{}, false
	}
	return Report{Ticket: atomic.LoadUint64(&r.Expected), Ended: atomic.LoadUint64(&r.Seen),
		PE: atomic.LoadUint32(&r.Peer), Count: atomic.LoadUint32(&r.Count)}, true
}

// counters are written by the thread and read by others.
type counters struct{ commands, bytes, failed, naps atomic.Uint64 }

// Stats counts a queue's work.
type Stats struct{ Commands, Bytes, Failed, Naps uint64 }

// Stats returns the counts of commands, bytes, failures and sleeps.
func (q *Queue) Stats() Stats {
	s := &q.stats
	return Stats{s.commands.Load(), s.bytes.Load(), s.failed.Load(), s.naps.Load()}
}

// nudge wakes the thread. It is called at every completion.
func (q *Queue) nudge() {
	q.news.Value.Add(1)
	q.news.Wake()
}

// closeTime bounds the wait for pending commands.
const closeTime = 10 * time.Second

// Close stops the thread. Pending commands must end within some seconds, as they do when the port
// is closed. Otherwise the error wraps ErrBusy, the memory is kept, and Close may be called again.
func (q *Queue) Close() error {
	q.closing.Lock()
	defer q.closing.Unlock()
	if q.closed {
		return nil
	}
	q.stop.Store(true)
	q.nudge()
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-q.ended:
	case <-timer.C:
		return fmt.Errorf("close a queue with pending commands after %v: %w", closeTime, ErrBusy)
	}
	q.closed = true
	q.cfg.Port.cq.OnReady(nil)
	return q.free()
}

func (q *Queue) free() error {
	var errs []error
	for _, s := range []*span{&q.own, &q.shared} {
		if s.free != nil {
			errs = append(errs, s.free())
			s.free = nil
		}
	}
	if q.held != nil {
		errs = append(errs, q.held())
		q.held = nil
	}
	return errors.Join(errs...)
}
