// SPDX-License-Identifier: MIT

package mlx5

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"mori/core/internal/sys"
	"mori/native/abi"
)

// A QueueConfig configures a queue. The zero value of each field except SQLog is a good choice.
type QueueConfig struct {
	SQLog uint32 // 1<<SQLog blocks of 64 bytes in the send queue
	CQLog uint32 // 1<<CQLog completions; 0 is as many as blocks, so that the queue cannot overrun
	RQLog uint32 // 1<<RQLog entries of ReceiveBytes in the receive queue; 0 is no receive queue

	Collapsed bool // one completion entry that each completion overwrites: abi.NICCollapsed
	NoDBR     bool // the NIC takes the producer index from the doorbell: abi.NICNoDBR. Not all NICs support it

	// Addr is memory of Bytes() bytes, page-aligned and zeroed, for the queue's rings and doorbell
	// records. The caller keeps it until Close has returned. Device is its address for the device. If
	// Addr is 0, the queue allocates memory, and Device equals Addr.
	Addr, Device uint64
}

// ReceiveBytes is the size of an entry of a receive queue: two segments.
const (
	ReceiveBytes     = 32
	receiveStrideLog = 1 // of 16 bytes
)

const pageBytes = 4096 // of the NIC; the system's pages may be larger

// A plan is the offsets of the parts of a queue in its memory, each on its own page. The work
// queues are at 0.
type plan struct{ cq, rcq, dbr, view, kept, end uint64 }

func (c *QueueConfig) plan() (p plan) {
	round := func(n uint64) uint64 { return (n + pageBytes - 1) &^ (pageBytes - 1) }
	p.cq = round(c.sqOffset() + BlockBytes<<c.SQLog)
	p.rcq = p.cq + round(CQEBytes<<c.CQLog)
	p.dbr = p.rcq
	if c.RQLog > 0 {
		p.dbr += round(CQEBytes << c.RQLog)
	}
	p.view = p.dbr + pageBytes
	p.kept = p.view + abi.NICQueueBytes
	p.end = round(p.kept + 4<<c.SQLog)
	return p
}

// sqOffset returns the offset of the send queue, which follows the receive queue.
func (c *QueueConfig) sqOffset() uint64 {
	if c.RQLog == 0 {
		return 0
	}
	return max(uint64(ReceiveBytes)<<c.RQLog, BlockBytes)
}

// Offsets of the doorbell records in their page.
const (
	dbrOfQP  = 0
	dbrOfCQ  = 64
	dbrOfRCQ = 128
)

func (c *QueueConfig) check(caps *Caps) error {
	if c.CQLog == 0 && !c.Collapsed {
		c.CQLog = c.SQLog
	}
	if c.Collapsed {
		c.CQLog = 0
	}
	switch {
	case c.SQLog < 2 || c.SQLog > min(caps.LogMaxQPSize, 15):
		// A 16-bit index distinguishes blocks only while less than half of its range is pending.
		return fmt.Errorf("send queue of 1<<%d blocks, want 1<<2 to 1<<%d: %w", c.SQLog, min(caps.LogMaxQPSize, 15), ErrArgument)
	case c.CQLog > caps.LogMaxCQSize:
		return fmt.Errorf("completion queue of 1<<%d entries, want 1<<%d at most: %w", c.CQLog, caps.LogMaxCQSize, ErrArgument)
	case c.RQLog > min(caps.LogMaxQPSize, 15):
		return fmt.Errorf("receive queue of 1<<%d entries, want 1<<%d at most: %w", c.RQLog, min(caps.LogMaxQPSize, 15), ErrArgument)
	case c.Addr%pageBytes != 0:
		return fmt.Errorf("memory of a queue at %#x, want a multiple of %d: %w", c.Addr, pageBytes, ErrArgument)
	}
	return nil
}

// Bytes returns the memory that a queue of this configuration needs.
func (c QueueConfig) Bytes() uint64 {
	if err := c.check(&Caps{LogMaxQPSize: 15, LogMaxCQSize: 24}); err != nil {
		return 0
	}
	return c.plan().end
}

// A Queue is a queue pair with its completion queues, their memory and a doorbell. Its states are
// those of the NIC:
//
//	NewQueue -> INIT -Connect-> RTS -Fail or an error-> ERR -Close
//
// From Connect until Close the rings belong to the poster, which may be a GPU.
type Queue struct {
	dev  *Device
	cfg  QueueConfig
	plan plan

	base     uint64
	own      []byte // the memory, if the queue allocated it
	uar      uint64
	uarPage  uint32
	cqn, rcq uint32
	qpn, psn uint32

	mu        sync.Mutex
	connected bool
	closed    bool
	undo      undo
}

// NewQueue makes a queue pair in state INIT.
func (d *Device) NewQueue(cfg QueueConfig) (*Queue, error) {
	if err := cfg.check(&d.caps); err != nil {
		return nil, fmt.Errorf("make a queue on %s: %w", d.Name(), err)
	}
	if err := d.hold(); err != nil {
		return nil, err
	}
	q := &Queue{dev: d, cfg: cfg, plan: cfg.plan(), psn: rand.Uint32() & 0xffffff}
	if err := q.build(); err != nil {
		err = errors.Join(fmt.Errorf("make a queue on %s: %w", d.Name(), err), q.undo.run())
		d.release()
		return nil, err
	}
	return q, nil
}

func (q *Queue) build() error {
	if err := q.memory(); err != nil {
		return err
	}
	q.clear()
	uar, page, err := q.dev.cmd.UAR()
	if err != nil {
		return fmt.Errorf("make a doorbell: %w", err)
	}
	q.uar, q.uarPage = uar, page
	q.later(func() error { return q.dev.cmd.FreeUAR(page) })
	dbr, err := q.umem(q.plan.dbr, pageBytes)
	if err != nil {
		return err
	}
	if q.cqn, err = q.completionQueue(q.plan.cq, q.cfg.CQLog, dbr, dbrOfCQ, q.cfg.Collapsed); err != nil {
		return err
	}
	q.rcq = q.cqn
	if q.cfg.RQLog > 0 {
		if q.rcq, err = q.completionQueue(q.plan.rcq, q.cfg.RQLog, dbr, dbrOfRCQ, false); err != nil {
			return err
		}
	}
	if err := q.queuePair(dbr); err != nil {
		return err
	}
	if err := q.init(); err != nil {
		return err
	}
	sys.Slice[abi.NICQueue](q.base+q.plan.view, 1)[0] = q.View()
	return nil
}

func (q *Queue) later(f func() error) { q.undo = append(q.undo, f) }

// memory uses the caller's memory or maps some.
func (q *Queue) memory() (err error) {
	if q.base = q.cfg.Addr; q.base != 0 {
		if q.cfg.Device == 0 {
			q.cfg.Device = q.base
		}
		return nil
	}
	if q.own, err = sys.Alloc(int(q.plan.end)); err != nil {
		return err
	}
	q.base = sys.AddrOf(q.own)
	q.cfg.Device = q.base
	q.later(func() error { return sys.Free(q.own) })
	return nil
}

func (q *Queue) umem(at, n uint64) (uint32, error) {
	id, err := q.dev.cmd.Umem(q.base+at, n)
	if err != nil {
		return 0, fmt.Errorf("register %d bytes with the NIC: %w", n, err)
	}
	q.later(func() error { return q.dev.cmd.FreeUmem(id) })
	return id, nil
}

func (q *Queue) completionQueue(at uint64, log, dbr uint32, dbrAt uint64, collapsed bool) (uint32, error) {
	id, err := q.umem(at, max(uint64(CQEBytes)<<log, pageBytes))
	if err != nil {
		return 0, err
	}
	cqn, err := q.dev.make(&CreateCQ{
		Op: OpCreateCQ, LogSize: log, UmemValid: true, UmemID: id, DBRUmemValid: true, DBRUmemID: dbr, DBRAddr: dbrAt,
		UARPage: q.uarPage, EQN: q.dev.info.EQN, Collapsed: collapsed, IgnoreOverrun: collapsed,
	})
	if err == nil {
		q.later(func() error { return q.dev.simple(OpDestroyCQ, cqn) })
	}
	return cqn, err
}

func (q *Queue) queuePair(dbr uint32) error {
	work, err := q.umem(0, q.plan.cq)
	if err != nil {
		return err
	}
	in := &CreateQP{Op: OpCreateQP, UmemValid: true, UmemID: work, QPC: QPContext{
		Service: ServiceRC, PathState: PathMigrated, PD: q.dev.pd, UARPage: q.uarPage, LogSQSize: q.cfg.SQLog, RQType: RQNone,
		SendCQN: q.cqn, RecvCQN: q.rcq, DBRUmemValid: true, DBRUmemID: dbr, DBRAddr: dbrOfQP, TimestampFormat: NoTimestamp,
		ScatterReq: 0, ScatterRes: 0, // results go to memory, where the poster expects them
	}}
	if q.cfg.RQLog > 0 {
		in.QPC.RQType, in.QPC.LogRQSize, in.QPC.LogRQStride = RQRegular, q.cfg.RQLog, receiveStrideLog
	}
	if q.cfg.NoDBR {
		in.QPC.SendDBRMode = DBRNone
	}
	q.qpn, err = q.dev.make(in)
	if err == nil {
		q.later(func() error { return q.dev.simple(OpDestroyQP, q.qpn) })
	}
	return err
}

// CQN returns the number of the send queue's completion queue.
func (q *Queue) CQN() uint32 { return q.cqn }

// QPN returns the number of the queue pair.
func (q *Queue) QPN() uint32 { return q.qpn }

// clear resets the queue's memory to its state before the first entry.
func (q *Queue) clear() {
	b := sys.Bytes(q.base, int(q.plan.end))
	clear(b)
	fill := func(at uint64, log uint32, invalid byte) {
		for i := uint64(0); i < CQEBytes<<log; i += CQEBytes {
			b[at+i+CQEBytes-1] = invalid
		}
	}
	if q.cfg.Collapsed { // the work counter is then 0xffff: no entry is done
		for i := range uint64(CQEBytes) {
			b[q.plan.cq+i] = 0xff
		}
	} else {
		fill(q.plan.cq, q.cfg.CQLog, CQEInvalid<<4)
	}
	if q.cfg.RQLog > 0 {
		fill(q.plan.rcq, q.cfg.RQLog, CQEInvalid<<4)
	}
}

// ViewAddr returns the device address of the view in the queue's memory.
func (q *Queue) ViewAddr() uint64 { return q.cfg.Device + q.plan.view }

// View returns the queue as device code sees it before the first entry.
func (q *Queue) View() abi.NICQueue {
	v := abi.NICQueue{
		SQ: q.cfg.Device + q.cfg.sqOffset(), DBR: q.cfg.Device + q.plan.dbr + dbrOfQP,
		CQ: q.cfg.Device + q.plan.cq, CQDBR: q.cfg.Device + q.plan.dbr + dbrOfCQ, UAR: q.uar,
		SQLog: q.cfg.SQLog, CQLog: q.cfg.CQLog, QPN: q.qpn, Provider: uint32(abi.NICProviderMLX5), Kept: q.cfg.Device + q.plan.kept, MTU: uint32(q.mtu()),
	}
	if q.cfg.Collapsed {
		v.Flags |= abi.NICCollapsed
	}
	if q.cfg.NoDBR {
		v.Flags |= abi.NICNoDBR
	}
	if q.dev.info.Emulated {
		v.Flags |= abi.NICEmulated
	}
	return v
}

// A ReceiveView has the host addresses of a queue's receive side. All are 0 if it has none.
type ReceiveView struct {
	RQ, DBR, CQ, CQDBR uint64
	RQLog              uint32
}

// ReceiveView returns the receive side of the queue.
func (q *Queue) ReceiveView() ReceiveView {
	if q.cfg.RQLog == 0 {
		return ReceiveView{}
	}
	return ReceiveView{
		RQ: q.base, DBR: q.base + q.plan.dbr + dbrOfQP, CQ: q.base + q.plan.rcq, CQDBR: q.base + q.plan.dbr + dbrOfRCQ, RQLog: q.cfg.RQLog,
	}
}

// Close destroys the queue. Its posters must have stopped, because Close may free its memory.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	err := q.undo.run()
	q.dev.release()
	return err
}
