// SPDX-License-Identifier: MIT

package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// Atomics on the memory of a GPU are the business of its own side, as no network's CPU has them there. Who wants one writes an ask to a desk of the PE, in
// host memory, by a write that the PE's queue is told of (fabric.OpRemoteData). There Config.Atomics does it, on a goroutine, and the answer comes back in the
// same way. The asks of a PE have deskSlots slots at each desk: one that is answered is free again.

// A Desk is host memory in which peers ask for atomics, and answer.
type Desk struct {
	port   *Port
	memory []byte
	region Region
	pes    int
	slots  int
}

// Of a desk's four areas each has a slot for each PE and ask.
const (
	askBytes    = 64
	answerBytes = 32

	mostDeskSlots = 32
	deskEntries   = 1024 // asks of all PEs, for whose completions and answers a port's queue has room
	mostDeskPEs   = deskEntries
)

// NewDesk makes the desk of a PE among so many. Its region travels to the peers (Peer.Desk).
func NewDesk(port *Port, pes int) (_ *Desk, err error) {
	if pes < 1 || pes > mostDeskPEs {
		return nil, fmt.Errorf("a desk for %d PEs, want 1 to %d: %w", pes, mostDeskPEs, ErrConfig)
	}
	d := &Desk{port: port, pes: pes, slots: min(mostDeskSlots, deskEntries/pes)}
	n := pes * d.slots * 2 * (askBytes + answerBytes)
	if d.memory, err = sys.Alloc(n); err != nil {
		return nil, fmt.Errorf("make a desk for %d PEs: %w", pes, err)
	}
	d.region, err = port.Register(fabric.Buffer{Addr: sys.AddrOf(d.memory), Len: uint64(n)})
	if err != nil {
		return nil, errors.Join(err, sys.Free(d.memory))
	}
	return d, nil
}

// Shown is the desk's region, for peers.
func (d *Desk) Shown() Shown {
	return Shown{Raw: d.region.Raw, Len: uint64(len(d.memory)), Host: true}
}

// Close frees the desk, after the port and the queue were closed.
func (d *Desk) Close() error {
	if d == nil || d.memory == nil {
		return nil
	}
	b := d.memory
	d.memory = nil
	return sys.Free(b)
}

// index is the place of a slot of a PE in each area.
func (d *Desk) index(pe uint32, slot int) uint64 { return uint64(int(pe)*d.slots + slot) }

// Offsets of slots: of asks and answers that come in, and of those that go out.
func (d *Desk) askIn(pe uint32, slot int) uint64 { return d.index(pe, slot) * askBytes }
func (d *Desk) askOut(pe uint32, slot int) uint64 {
	return d.index(uint32(d.pes), 0)*askBytes + d.index(pe, slot)*askBytes
}
func (d *Desk) answerIn(pe uint32, slot int) uint64 {
	return d.index(uint32(d.pes), 0)*2*askBytes + d.index(pe, slot)*answerBytes
}
func (d *Desk) answerOut(pe uint32, slot int) uint64 {
	return d.index(uint32(d.pes), 0)*(2*askBytes+answerBytes) + d.index(pe, slot)*answerBytes
}

// A Change is an atomic that a peer asks for.
type Change struct {
	Op             fabric.AtomicOp
	Word           int    // bytes of what it changes, 4 or 8
	Addr           uint64 // in the first local memory
	Value, Compare uint64
}

// An ask is what travels to a desk. Ticket tells it from others of its slot.
type ask struct {
	ticket, terms, offset, value, compare uint64
}

func (a *ask) put(b []byte) {
	for i, v := range []uint64{a.ticket, a.terms, a.offset, a.value, a.compare} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
}

func (a *ask) parse(b []byte) {
	for i, v := range []*uint64{&a.ticket, &a.terms, &a.offset, &a.value, &a.compare} {
		*v = binary.LittleEndian.Uint64(b[8*i:])
	}
}

// change is what an ask wants, of this side's memory. It comes from outside.
func (a *ask) change(own *Local) (Change, error) {
	c := Change{Op: fabric.AtomicOp(a.terms & 0xff), Word: int(a.terms >> 8 & 0xff), Addr: own.Addr + a.offset, Value: a.value, Compare: a.compare}
	kind := fabric.OpFetchAtomic
	if c.Op >= fabric.AtomicCSwap {
		kind = fabric.OpCompareAtomic
	}
	switch word := uint64(c.Word); {
	case word != 4 && word != 8 || !fabric.AtomicValid(kind, c.Op, typeOf(word)):
		return c, fmt.Errorf("%v of %d bytes: %w", c.Op, word, fabric.ErrInvalid)
	case a.offset > own.Len || word > own.Len-a.offset:
		return c, fmt.Errorf("%d bytes at %#x of %d: %w", word, a.offset, own.Len, fabric.ErrRange)
	case c.Addr%word != 0:
		return c, fmt.Errorf("%#x is not aligned to %d: %w", a.offset, word, fabric.ErrInvalid)
	}
	return c, nil
}

// A notice is what a completion at the other side carries: which desk slot of which PE, and whether it is an answer.
const (
	noticeSlotBits = 8
	noticePEBits   = 20
	noticeAnswer   = 1 << (noticeSlotBits + noticePEBits)
)

func noticeOf(pe uint32, slot int, answer bool) uint64 {
	n := uint64(pe)<<noticeSlotBits | uint64(slot)
	if answer {
		n |= noticeAnswer
	}
	return n
}

// An answer is what an ask led to.
type answer struct {
	pe     uint32 // who asked
	slot   int
	ticket uint64
	old    uint64
	status uint32 // 0, or the errno
}

// A waiting ask is of this side.
type waiting struct {
	position uint64
	there    bool
}

// asks is what a queue's thread knows of desks.
type asks struct {
	desk *Desk
	mine [][]waiting // by PE and slot

	work chan job      // for appliers
	done chan answer   // from them
	idle chan struct{} // closed when the last applier has ended
}

// A job is an ask of a peer.
type job struct {
	answer
	change Change
}

// Appliers are how many calls of Config.Atomics there are at a time: each is a launch of a kernel, or the like, and waits for it.
const Appliers = 4

// startDesk begins to work for peers.
func (q *Queue) startDesk() {
	a := &q.thread.asks
	a.desk = q.cfg.Desk
	a.mine = make([][]waiting, len(q.cfg.Peers))
	for pe := range a.mine {
		a.mine[pe] = make([]waiting, a.desk.slots)
	}
	a.work, a.done, a.idle = make(chan job, deskEntries), make(chan answer, deskEntries), make(chan struct{})
	left := make(chan struct{}, Appliers)
	for range Appliers {
		go func() {
			for j := range a.work {
				q.apply(&j)
				a.done <- j.answer
				q.nudge()
			}
			left <- struct{}{}
		}()
	}
	go func() {
		for range Appliers {
			<-left
		}
		close(a.idle)
	}()
}

// endDesk ends the queue's thread: when nobody works for peers any more.
func (w *worker) endDesk() {
	defer close(w.q.ended)
	if w.asks.desk == nil {
		return
	}
	close(w.asks.work)
	for {
		select {
		case <-w.asks.done: // it is too late for an answer
		case <-w.asks.idle:
			return
		}
	}
}

// apply does what a peer asks for.
func (q *Queue) apply(j *job) {
	if q.stop.Load() {
		j.status = uint32(fabric.ErrClosed)
		return
	}
	old, err := q.cfg.Atomics(j.change)
	if err != nil {
		j.status = statusOf(err)
	}
	j.old = old
}

// asksFor reports whether an atomic on a region of a PE is that PE's own business.
func (w *worker) asksFor(pe uint32, r *Remote) bool {
	return !r.Host && w.asks.desk != nil && w.q.cfg.Peers[pe].Desk.Len != 0
}

// appendAsk asks for a command's atomic, after all that was put to the PE before if it has to be: the desk is other memory than what was put to, so that no
// order of writes is enough. The flight ends with the answer.
func (w *worker) appendAsk(position uint64, pe uint32, a ask, after bool) error {
	d := w.asks.desk
	slot := w.freeSlot(pe)
	if slot < 0 {
		return fmt.Errorf("%d asks are under way: %w", d.slots, fabric.ErrAgain) // take looks before
	}
	a.ticket = position + 1
	from := d.askOut(pe, slot)
	a.put(d.memory[from:])
	w.asks.mine[pe][slot] = waiting{position, true}
	w.course[pe].asked++
	w.course[pe].fence = w.course[pe].fence || after
	to := w.q.cfg.Peers[pe].Desk
	w.append(position, pe, fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Data: noticeOf(uint32(w.q.cfg.Self), slot, false),
		Seg:  fabric.Seg{Addr: sys.AddrOf(d.memory) + from, Len: askBytes, MR: d.region.Desc},
		RSeg: fabric.RSeg{Addr: to.Base + d.askIn(uint32(w.q.cfg.Self), slot), Len: askBytes, Key: to.Key}})
	w.flight(position).left++
	return nil
}

// freeSlot is a slot for an ask to a PE, -1 if there is none.
func (w *worker) freeSlot(pe uint32) int {
	for i := range w.asks.mine[pe] {
		if !w.asks.mine[pe][i].there {
			return i
		}
	}
	return -1
}

// notified is told of what a peer has written to the desk, which may be anything.
func (w *worker) notified(data uint64) {
	d := w.asks.desk
	if d == nil {
		return
	}
	slot, pe := int(data&(1<<noticeSlotBits-1)), uint32(data>>noticeSlotBits&(1<<noticePEBits-1))
	if slot >= d.slots || int(pe) >= len(w.course) {
		return
	}
	if data&noticeAnswer != 0 {
		w.answered(pe, slot)
		return
	}
	var a ask
	a.parse(d.memory[d.askIn(pe, slot):])
	j := job{answer: answer{pe: pe, slot: slot, ticket: a.ticket}}
	var err error
	if j.change, err = a.change(&w.q.cfg.Local[0]); err != nil {
		j.status = statusOf(err)
		w.reply(&j.answer)
		return
	}
	select {
	case w.asks.work <- j:
	default: // more asks than a peer has slots
		j.status = uint32(fabric.ErrAgain)
		w.reply(&j.answer)
	}
}

// answered ends the ask of a slot.
func (w *worker) answered(pe uint32, slot int) {
	mine := &w.asks.mine[pe][slot]
	d := w.asks.desk
	b := d.memory[d.answerIn(pe, slot):]
	ticket, old, status := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), uint32(binary.LittleEndian.Uint64(b[16:]))
	if !mine.there || ticket != mine.position+1 {
		return // of an ask that nobody waits for any more
	}
	position := mine.position
	f := w.flight(position)
	mine.there = false
	w.course[pe].asked--
	if status != 0 {
		w.fail(pe, fmt.Errorf("%v, which the PE does itself: %w", f.kind, fabric.Errno(status)))
	} else if f.kind == kindFetch {
		sys.Store64(w.q.places.results+w.slot(position)*resultBytes, old)
	}
	if f.left--; f.left == 0 {
		w.finish(position, f)
	}
}

// dropAsks ends what PE pe was asked for: it will not answer, or nobody cares.
func (w *worker) dropAsks(pe uint32) {
	if w.asks.desk == nil {
		return
	}
	for slot := range w.asks.mine[pe] {
		mine := &w.asks.mine[pe][slot]
		if !mine.there {
			continue
		}
		mine.there = false
		w.course[pe].asked--
		f := w.flight(mine.position)
		if f.left--; f.left == 0 {
			w.finish(mine.position, f)
		}
	}
}

// answerCtx marks the completions of answers, which are of no command.
const answerCtx = 1 << 63

// reply queues an answer.
func (w *worker) reply(a *answer) {
	d := w.asks.desk
	from := d.answerOut(a.pe, a.slot)
	b := d.memory[from:]
	for i, v := range []uint64{a.ticket, a.old, uint64(a.status)} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	to := w.q.cfg.Peers[a.pe]
	w.made++
	w.ops = append(w.ops, fabric.Op{Kind: fabric.OpWrite, Flags: fabric.OpRemoteData, Dest: to.Dest, Ctx: answerCtx | uint64(a.pe),
		Data: noticeOf(uint32(w.q.cfg.Self), a.slot, true),
		Seg:  fabric.Seg{Addr: sys.AddrOf(d.memory) + from, Len: answerBytes, MR: d.region.Desc},
		RSeg: fabric.RSeg{Addr: to.Desk.Base + d.answerIn(uint32(w.q.cfg.Self), a.slot), Len: answerBytes, Key: to.Desk.Key}})
}

// replies queues the answers that appliers have.
func (w *worker) replies() (n int) {
	if w.asks.desk == nil || w.gone {
		return 0
	}
	for ; len(w.ops) < batch; n++ {
		select {
		case a := <-w.asks.done:
			w.reply(&a)
		default:
			return n
		}
	}
	return n
}
