// SPDX-License-Identifier: MIT

package proxy

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// takeSome takes commands while there are some, and room for them.
func (w *worker) takeSome() (n int) {
	for ; n < batch && len(w.ops) < batch && !w.gone; n++ {
		c, ok := w.look()
		if !ok {
			return n
		}
		if w.mustWait(&c) {
			w.held, w.holds = c, true
			return n
		}
		w.holds = false
		w.take(c)
	}
	return n
}

// mustWait reports whether others have to end before a command is taken: bytes that are under way, or asks, which end with an answer and not with their op.
func (w *worker) mustWait(c *command) bool {
	if w.bytes > 0 && w.bytes+c.bytes > w.q.cfg.Bytes && w.moves(c.kind) {
		return true
	}
	if w.asks.desk == nil || int(c.pe) >= len(w.course) || w.course[c.pe].asked == 0 {
		return false
	}
	switch c.kind {
	case kindFence:
		return true
	case kindPutSignal, kindAtomic, kindFetch:
		return w.freeSlot(c.pe) < 0
	}
	return false
}

func (w *worker) moves(k kind) bool { return k == kindPut || k == kindGet || k == kindPutSignal }

// look reads the next command, if it is whole.
func (w *worker) look() (command, bool) {
	if w.holds {
		return w.held, true
	}
	if w.next-w.tail == uint64(len(w.flights)) {
		return command{}, false // the slot's command of the lap before has not ended: nobody may have written there
	}
	slot := w.slot(w.next)
	at := w.q.places.ring + slot*commandBytes
	first, second := sys.Load64(at), sys.Load64(at+8)
	if lap := lapOf(w.next, w.q.log); first&lapBit != 0 != lap || second&lapBit != 0 != lap {
		return command{}, false
	}
	var d detail
	if first&detailBit != 0 {
		for i := range d {
			d[i] = sys.Load64(w.q.places.details + slot*detailBytes + 8*uint64(i))
		}
	}
	return decode(first, second, &d), true
}

// take makes the ops of a command.
func (w *worker) take(c command) {
	position := w.next
	w.next++
	f := w.flight(position)
	*f = flight{pe: c.pe, kind: c.kind, word: c.word, left: 1}
	w.q.stats.commands.Add(1)
	if err := w.make(position, f, &c); err != nil {
		w.fail(c.pe, fmt.Errorf("%v of %d bytes at offset %#x of region %d: %w", c.kind, c.bytes, c.remote, c.region, err))
	}
	if f.left--; f.left == 0 {
		w.finish(position, f)
	}
}

// make appends a command's ops, or none if it cannot be carried out.
func (w *worker) make(position uint64, f *flight, c *command) error {
	if c.kind == 0 || c.kind >= kindEnd || int(c.pe) >= len(w.course) {
		return fmt.Errorf("command %d for PE %d of %d: %w", c.kind, c.pe, len(w.course), fabric.ErrInvalid)
	}
	course := &w.course[c.pe]
	if course.failed {
		w.q.stats.failed.Add(1)
		return nil // it has ended; the PE's status says why
	}
	switch c.kind {
	case kindPut, kindGet:
		return w.makeMove(position, f, c)
	case kindPutSignal:
		return w.makePutSignal(position, f, c)
	case kindImmediate:
		return w.makeImmediate(position, c)
	case kindAtomic, kindFetch:
		return w.makeAtomic(position, c)
	}
	course.fence = true
	return nil
}

// append queues an op of the command at a position.
func (w *worker) append(position uint64, pe uint32, op fabric.Op) {
	course := &w.course[pe]
	if course.fence {
		op.Flags |= fabric.OpFence
		course.fence = false
	}
	op.Dest, op.Ctx = w.q.cfg.Peers[pe].Dest, position
	w.ops = append(w.ops, op)
	w.flight(position).left++
	w.made++
}

// remote checks a range of a PE's region.
func (w *worker) remote(pe uint32, region uint16, off, n uint64) (*Remote, error) {
	regions := w.q.cfg.Peers[pe].Regions
	if int(region) >= len(regions) {
		return nil, fmt.Errorf("PE %d has %d regions: %w", pe, len(regions), fabric.ErrInvalid)
	}
	r := &regions[region]
	if off > r.Len || n > r.Len-off {
		return nil, fmt.Errorf("%d bytes at %#x of %d: %w", n, off, r.Len, fabric.ErrRange)
	}
	return r, nil
}

// near finds local memory that a command names, as the provider knows it.
func (w *worker) near(c *command) (fabric.Seg, error) {
	all := *w.q.local.Load()
	addr := c.local
	if !c.detailed {
		addr += all[0].at()
	}
	for i := range all {
		l := &all[i]
		if off := addr - l.at(); off <= l.Len && c.bytes <= l.Len-off {
			return fabric.Seg{Addr: l.Addr + off, Len: c.bytes, MR: l.Desc}, nil
		}
	}
	return fabric.Seg{}, fmt.Errorf("%d bytes at local address %#x are not registered: %w", c.bytes, addr, fabric.ErrNoMR)
}

// makeMove cuts a put or a get into pieces.
func (w *worker) makeMove(position uint64, f *flight, c *command) error {
	r, err := w.remote(c.pe, c.region, c.remote, c.bytes)
	if err != nil {
		return err
	}
	seg, err := w.near(c)
	if err != nil {
		return err
	}
	kind := fabric.OpWrite
	if c.kind == kindGet {
		kind = fabric.OpRead
	}
	f.bytes = c.bytes
	w.bytes += c.bytes
	w.q.stats.bytes.Add(c.bytes)
	at := r.Base + c.remote
	for left := c.bytes; left > 0; {
		n := min(left, w.piece)
		w.append(position, c.pe, fabric.Op{Kind: kind, Seg: fabric.Seg{Addr: seg.Addr, Len: n, MR: seg.MR}, RSeg: fabric.RSeg{Addr: at, Len: n, Key: r.Key}})
		seg.Addr, at, left = seg.Addr+n, at+n, left-n
	}
	return nil
}

func (w *worker) makePutSignal(position uint64, f *flight, c *command) error {
	to, err := w.signalPlace(c)
	if err != nil {
		return err
	}
	if err := w.makeMove(position, f, c); err != nil {
		return err
	}
	if !w.inOrder {
		w.course[c.pe].fence = true
	}
	if fabric.AtomicOp(c.atomic) == fabric.AtomicWrite && !to.Host {
		w.appendWord(position, c.pe, to, c.signal, c.value, 8)
		return nil
	}
	if w.asksFor(c.pe, to) {
		return w.appendAsk(position, c.pe, ask{terms: uint64(c.atomic) | 8<<8, offset: c.signal, value: c.value}, true)
	}
	w.appendAtomic(position, c.pe, to, c.signal, fabric.OpAtomic, fabric.AtomicOp(c.atomic), c.value, 0, 8)
	return nil
}

// signalPlace checks a signal before anything of its command is made.
func (w *worker) signalPlace(c *command) (*Remote, error) {
	op := fabric.AtomicOp(c.atomic)
	if op != fabric.AtomicWrite && op != fabric.AtomicSum {
		return nil, fmt.Errorf("signal by %v: %w", op, fabric.ErrInvalid)
	}
	to, err := w.remote(c.pe, c.signalRegion, c.signal, 8)
	if err != nil {
		return nil, fmt.Errorf("signal in region %d: %w", c.signalRegion, err)
	}
	if (to.Base+c.signal)%8 != 0 {
		return nil, fmt.Errorf("signal at %#x, which is not aligned: %w", c.signal, fabric.ErrInvalid)
	}
	if op == fabric.AtomicSum && !to.Host && !(c.signalRegion == 0 && w.asksFor(c.pe, to)) {
		return nil, fmt.Errorf("add to a signal in the memory of a GPU: %w", fabric.ErrNotSupported)
	}
	return to, nil
}

func (w *worker) makeImmediate(position uint64, c *command) error {
	if c.bytes > 8 {
		return fmt.Errorf("want up to 8 bytes: %w", fabric.ErrInvalid)
	}
	r, err := w.remote(c.pe, c.region, c.remote, c.bytes)
	if err != nil {
		return err
	}
	if c.bytes > 0 {
		w.appendWord(position, c.pe, r, c.remote, c.value, c.bytes)
	}
	return nil
}

func (w *worker) makeAtomic(position uint64, c *command) error {
	op, word := fabric.AtomicOp(c.atomic), uint64(c.word)
	kind := fabric.OpAtomic
	if c.kind == kindFetch {
		kind = fabric.OpFetchAtomic
		if op >= fabric.AtomicCSwap {
			kind = fabric.OpCompareAtomic
		}
	}
	if word != 4 && word != 8 || !fabric.AtomicValid(kind, op, typeOf(word)) {
		return fmt.Errorf("%v of %d bytes: %w", op, word, fabric.ErrInvalid)
	}
	r, err := w.remote(c.pe, c.region, c.remote, word)
	if err != nil {
		return err
	}
	if (r.Base+c.remote)%word != 0 {
		return fmt.Errorf("not aligned to %d: %w", word, fabric.ErrInvalid)
	}
	if c.region == 0 && w.asksFor(c.pe, r) {
		return w.appendAsk(position, c.pe, ask{terms: uint64(c.atomic) | word<<8, offset: c.remote, value: c.value, compare: c.compare}, false)
	}
	if !r.Host {
		return fmt.Errorf("%v in the memory of a GPU: %w", op, fabric.ErrNotSupported)
	}
	w.appendAtomic(position, c.pe, r, c.remote, kind, op, c.value, c.compare, word)
	return nil
}

func typeOf(word uint64) fabric.DataType {
	if word == 4 {
		return fabric.Uint32
	}
	return fabric.Uint64
}

// operand puts the words of a command where they stay until it has ended, and kernels have no business.
func (w *worker) operand(position, value, compare uint64) (at uint64) {
	at = w.q.places.operands + w.slot(position)*operandBytes
	sys.Store64(at, value)
	sys.Store64(at+8, compare)
	return at
}

// appendWord queues a write of the low bytes of a value.
func (w *worker) appendWord(position uint64, pe uint32, r *Remote, off, value, n uint64) {
	at := w.operand(position, value, 0)
	w.append(position, pe, fabric.Op{Kind: fabric.OpWrite, Seg: fabric.Seg{Addr: at, Len: n, MR: w.q.words.Desc}, RSeg: fabric.RSeg{Addr: r.Base + off, Len: n, Key: r.Key}})
}

// appendAtomic queues an atomic.
func (w *worker) appendAtomic(position uint64, pe uint32, r *Remote, off uint64, kind fabric.OpKind, op fabric.AtomicOp, value, compare, word uint64) {
	at, desc := w.operand(position, value, compare), w.q.words.Desc
	a := &w.atomics[w.slot(position)]
	*a = fabric.Atomic{Op: op, Type: typeOf(word)}
	if kind == fabric.OpCompareAtomic {
		a.Compare = fabric.Seg{Addr: at + 8, Len: word, MR: desc}
	}
	if kind != fabric.OpAtomic {
		result := w.q.places.results + w.slot(position)*resultBytes
		a.Result = fabric.Seg{Addr: result, Len: word, MR: desc}
	}
	w.append(position, pe, fabric.Op{Kind: kind, Seg: fabric.Seg{Addr: at, Len: word, MR: desc}, RSeg: fabric.RSeg{Addr: r.Base + off, Len: word, Key: r.Key}, Atomic: a})
}
