// SPDX-License-Identifier: MIT

package proxy

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// A builder validates commands, which come from a GPU and are not trusted, and turns them into ops
// of the endpoint. Only the queue's thread uses it.
type builder struct {
	q        *Queue
	ring     *ring
	requests *requests

	ops     []fabric.Op // built, not submitted
	made    uint64      // built and not completed, submitted or not
	fence   []bool      // by PE: the next op to it waits for earlier ones
	atomics []fabric.Atomic

	inOrder bool // a write that follows a write needs no fence
	piece   uint64
}

func (b *builder) init(q *Queue, r *ring, requests *requests) {
	info := q.cfg.Port.Info
	l := &info.Limits
	*b = builder{q: q, ring: r, requests: requests, piece: l.MaxMsg,
		fence: make([]bool, len(q.cfg.Peers)), atomics: make([]fabric.Atomic, q.cfg.Slots)}
	if l.BestOp > 0 {
		b.piece = min(l.BestOp, l.MaxMsg)
	}
	if b.piece == 0 {
		b.piece = 1 << 30
	}
	b.inOrder = info.Order&fabric.OrderWAW != 0 && l.OrderWAW >= b.piece
}

// build appends the ops of the command at a position, or none if the command is invalid.
func (b *builder) build(position uint64, c *command) error {
	switch c.kind {
	case kindPut, kindGet:
		return b.move(position, c)
	case kindPutSignal:
		return b.putSignal(position, c)
	case kindImmediate:
		return b.immediate(position, c)
	case kindAtomic, kindFetch:
		return b.atomic(position, c)
	}
	b.fence[c.pe] = true
	return nil
}

// append queues an op of the command at a position.
func (b *builder) append(position uint64, pe uint32, op fabric.Op) {
	if b.fence[pe] {
		op.Flags |= fabric.OpFence
		b.fence[pe] = false
	}
	op.Dest, op.Ctx = b.q.cfg.Peers[pe].Dest, position
	b.ops = append(b.ops, op)
	b.ring.command(position).left++
	b.made++
}

// remote checks a range of a PE's region.
func (b *builder) remote(pe uint32, region uint16, off, n uint64) (*Remote, error) {
	regions := b.q.cfg.Peers[pe].Regions
	if int(region) >= len(regions) {
		return nil, fmt.Errorf("PE %d has %d regions: %w", pe, len(regions), fabric.ErrInvalid)
	}
	r := &regions[region]
	if off > r.Len || n > r.Len-off {
		return nil, fmt.Errorf("%d bytes at %#x of %d: %w", n, off, r.Len, fabric.ErrRange)
	}
	return r, nil
}

// local finds the local memory of a command, as the provider addresses it.
func (b *builder) local(c *command) (fabric.Seg, error) {
	all := *b.q.local.Load()
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

// move splits a put or a get into pieces.
func (b *builder) move(position uint64, c *command) error {
	r, err := b.remote(c.pe, c.region, c.remote, c.bytes)
	if err != nil {
		return err
	}
	seg, err := b.local(c)
	if err != nil {
		return err
	}
	kind := fabric.OpWrite
	if c.kind == kindGet {
		kind = fabric.OpRead
	}
	b.ring.command(position).bytes = c.bytes
	b.ring.bytes += c.bytes
	b.q.stats.bytes.Add(c.bytes)
	at := r.Base + c.remote
	for left := c.bytes; left > 0; {
		n := min(left, b.piece)
		b.append(position, c.pe, fabric.Op{Kind: kind,
			Seg:  fabric.Seg{Addr: seg.Addr, Len: n, MR: seg.MR},
			RSeg: fabric.RSeg{Addr: at, Len: n, Key: r.Key}})
		seg.Addr, at, left = seg.Addr+n, at+n, left-n
	}
	return nil
}

func (b *builder) putSignal(position uint64, c *command) error {
	to, err := b.signal(c)
	if err != nil {
		return err
	}
	if err := b.move(position, c); err != nil {
		return err
	}
	if !b.inOrder {
		b.fence[c.pe] = true
	}
	if fabric.AtomicOp(c.atomic) == fabric.AtomicWrite && !to.Host {
		b.appendWord(position, c.pe, to, c.signal, c.value, 8)
		return nil
	}
	if b.requests.needed(c.pe, to) {
		// The atomic server is in other memory than the payload, so write ordering is not enough.
		b.fence[c.pe] = true
		return b.appendRequest(position, c.pe, request{terms: uint64(c.atomic) | 8<<8, offset: c.signal, value: c.value})
	}
	b.appendAtomic(position, c.pe, to, &wordOp{kind: fabric.OpAtomic, op: fabric.AtomicOp(c.atomic), off: c.signal, value: c.value, word: 8})
	return nil
}

// signal validates a signal before any op of its command is built.
func (b *builder) signal(c *command) (*Remote, error) {
	op := fabric.AtomicOp(c.atomic)
	if op != fabric.AtomicWrite && op != fabric.AtomicSum {
		return nil, fmt.Errorf("signal by %v: %w", op, fabric.ErrInvalid)
	}
	to, err := b.remote(c.pe, c.signalRegion, c.signal, 8)
	if err != nil {
		return nil, fmt.Errorf("signal in region %d: %w", c.signalRegion, err)
	}
	if (to.Base+c.signal)%8 != 0 {
		return nil, fmt.Errorf("signal at unaligned address %#x: %w", c.signal, fabric.ErrInvalid)
	}
	if op == fabric.AtomicSum && !to.Host && !(c.signalRegion == 0 && b.requests.needed(c.pe, to)) {
		return nil, fmt.Errorf("add to a signal in GPU memory: %w", fabric.ErrNotSupported)
	}
	return to, nil
}

func (b *builder) immediate(position uint64, c *command) error {
	if c.bytes > 8 {
		return fmt.Errorf("want up to 8 bytes: %w", fabric.ErrInvalid)
	}
	r, err := b.remote(c.pe, c.region, c.remote, c.bytes)
	if err != nil {
		return err
	}
	if c.bytes > 0 {
		b.appendWord(position, c.pe, r, c.remote, c.value, c.bytes)
	}
	return nil
}

func (b *builder) atomic(position uint64, c *command) error {
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
	r, err := b.remote(c.pe, c.region, c.remote, word)
	if err != nil {
		return err
	}
	if (r.Base+c.remote)%word != 0 {
		return fmt.Errorf("not aligned to %d: %w", word, fabric.ErrInvalid)
	}
	if c.region == 0 && b.requests.needed(c.pe, r) {
		return b.appendRequest(position, c.pe, request{terms: uint64(c.atomic) | word<<8, offset: c.remote, value: c.value, compare: c.compare})
	}
	if !r.Host {
		return fmt.Errorf("%v in GPU memory: %w", op, fabric.ErrNotSupported)
	}
	b.appendAtomic(position, c.pe, r, &wordOp{kind: kind, op: op, off: c.remote, value: c.value, compare: c.compare, word: word})
	return nil
}

func typeOf(word uint64) fabric.DataType {
	if word == 4 {
		return fabric.Uint32
	}
	return fabric.Uint64
}

// appendWord queues a write of the low n bytes of a value.
func (b *builder) appendWord(position uint64, pe uint32, r *Remote, off, value, n uint64) {
	at := sys.Addr(&b.ring.operand(position, value, 0).value)
	b.append(position, pe, fabric.Op{Kind: fabric.OpWrite,
		Seg:  fabric.Seg{Addr: at, Len: n, MR: b.q.words.Desc},
		RSeg: fabric.RSeg{Addr: r.Base + off, Len: n, Key: r.Key}})
}

// A wordOp is an atomic on a word at an offset of a region.
type wordOp struct {
	kind                      fabric.OpKind
	op                        fabric.AtomicOp
	off, value, compare, word uint64
}

// appendAtomic queues an atomic that the provider executes.
func (b *builder) appendAtomic(position uint64, pe uint32, r *Remote, w *wordOp) {
	o, desc := b.ring.operand(position, w.value, w.compare), b.q.words.Desc
	a := &b.atomics[b.ring.slot(position)]
	*a = fabric.Atomic{Op: w.op, Type: typeOf(w.word)}
	if w.kind == fabric.OpCompareAtomic {
		a.Compare = fabric.Seg{Addr: sys.Addr(&o.compare), Len: w.word, MR: desc}
	}
	if w.kind != fabric.OpAtomic {
		a.Result = fabric.Seg{Addr: sys.Addr(&b.ring.result(position).Value), Len: w.word, MR: desc}
	}
	b.append(position, pe, fabric.Op{Kind: w.kind, Atomic: a,
		Seg:  fabric.Seg{Addr: sys.Addr(&o.value), Len: w.word, MR: desc},
		RSeg: fabric.RSeg{Addr: r.Base + w.off, Len: w.word, Key: r.Key}})
}

// appendRequest queues a request to the PE's atomic server. The reply completes the command.
func (b *builder) appendRequest(position uint64, pe uint32, r request) error {
	op, err := b.requests.add(position, pe, r)
	if err != nil {
		return err
	}
	b.append(position, pe, op)
	b.ring.command(position).left++
	return nil
}

// replyCtx marks the ops that carry replies, which belong to no command.
const replyCtx = 1 << 63

// appendReply queues a reply to a peer's request.
func (b *builder) appendReply(r *reply) {
	op := b.requests.answer(r)
	op.Dest, op.Ctx = b.q.cfg.Peers[r.pe].Dest, replyCtx|uint64(r.pe)
	b.ops = append(b.ops, op)
	b.made++
}

// submitted drops the first n ops.
func (b *builder) submitted(n int) { b.ops = b.ops[:copy(b.ops, b.ops[n:])] }
