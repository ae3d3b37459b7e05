// SPDX-License-Identifier: MIT

package verbs

import (
	"encoding/binary"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/native/verbs"
)

// A posting is the work requests of an op, or the single one of a message frame.
type posting struct {
	wrs  []verbs.SendWR
	sges []verbs.SGE

	owner  *pendingOp  // completed when all have ended
	buffer *sendBuffer // instead of owner

	left  atomic.Int32 // pending work requests
	fault atomic.Pointer[error]
}

func (p *posting) reset() {
	p.wrs, p.sges = p.wrs[:0], p.sges[:0]
	p.fault.Store(nil)
}

// failed records the first cause.
func (p *posting) failed(err error) { p.fault.CompareAndSwap(nil, &err) }

// ended counts n work requests as ended. The last one completes the op.
func (p *posting) ended(n int32) {
	switch {
	case p.left.Add(-n) != 0:
	case p.buffer != nil:
		p.buffer.wire.sent(p.buffer)
	default:
		p.owner.completed()
	}
}

// A part is the work requests of one queue pair: wrs[from:to] of the posting.
type part struct {
	pair     *pair
	of       *posting
	from, to int
}

func (p *part) fail(err error) {
	p.of.failed(err)
	p.of.ended(int32(p.to - p.from))
}

// post builds the work requests of the runs and posts them to queue pairs.
func (o *pendingOp) post() {
	pairs := o.path.rails.choose(o.op.Len())
	if o.hasNotice() && creditAll(pairs) {
		o.announced = true
	}
	parts := o.cut(pairs)
	o.left.Store(int32(len(o.wrs)))
	for _, p := range parts { // after the last one, o may be complete and reused
		p.pair.add(p)
	}
}

// cut divides the runs among pairs, by bytes.
func (o *pendingOp) cut(pairs []*pair) []part {
	share := (o.op.Len() + uint64(len(pairs)) - 1) / uint64(len(pairs))
	parts := o.parts[:0]
	number := uint32(0)
	if o.announced {
		number = o.path.ops.numbers.Add(1)
	}
	rest := o.runs
	for i, p := range pairs {
		n, bytes := 0, uint64(0)
		for n < len(rest) && (bytes < share || i == len(pairs)-1) {
			bytes += rest[n].n
			n++
		}
		if n == 0 {
			if o.announced {
				p.credits.Add(1)
			}
			continue
		}
		from := len(o.wrs)
		o.build(p, rest[:n])
		if o.announced {
			o.notice(number)
		}
		parts = append(parts, part{p, &o.posting, from, len(o.wrs)})
		rest = rest[n:]
	}
	if o.announced {
		for _, p := range parts {
			o.wrs[p.to-1].Imm |= uint32(len(parts)) << 24
		}
	}
	o.parts = parts
	return parts
}

// build appends the work requests of runs for a pair. Each has one remote run, and gathers from or
// scatters to as many local runs as allowed.
func (o *pendingOp) build(p *pair, runs []run) {
	ref := &o.grant.Region
	op, flags, most := verbs.OpWrite, uint8(0), p.maxSGE
	if o.op.Kind == fabric.OpRead {
		op, most = verbs.OpRead, p.maxSGERead
	}
	if runs[0].reg == nil {
		flags = verbs.Inline
	}
	var end, bytes uint64 // of the last work request: its end at the target, and its length
	for i := range runs {
		r := &runs[i]
		sge := verbs.SGE{Addr: r.local, Len: uint32(r.n)}
		if r.reg != nil {
			sge.LKey = r.reg.keys[p.rail.nicAt][r.reg.piece(r.local)].Local
		}
		o.sges = append(o.sges, sge)
		if i > 0 && r.remote == end && int(o.wrs[len(o.wrs)-1].Count) < most && bytes+r.n <= o.path.rails.maxRun && (r.remote-ref.base)%ref.chunk != 0 {
			o.wrs[len(o.wrs)-1].Count++
			end, bytes = end+r.n, bytes+r.n
			continue
		}
		o.wrs = append(o.wrs, verbs.SendWR{
			Op: op, Flags: flags, RemoteAddr: r.remote, RKey: ref.keys[p.rail.index][(r.remote-ref.base)/ref.chunk],
			First: uint32(len(o.sges) - 1), Count: 1,
		})
		end, bytes = r.remote+r.n, r.n
	}
}

// hasNotice reports whether the op has remote data.
func (o *pendingOp) hasNotice() bool {
	return o.op.Kind == fabric.OpWrite && o.op.Flags&fabric.OpRemoteData != 0
}

// notice appends the send of the op's remote data; see notice.go.
func (o *pendingOp) notice(number uint32) {
	binary.BigEndian.PutUint64(o.noticeBytes[:], o.op.Data)
	binary.BigEndian.PutUint64(o.noticeBytes[8:], o.op.Len())
	binary.BigEndian.PutUint64(o.noticeBytes[16:], o.grant.Ticket())
	o.sges = append(o.sges, verbs.SGE{Addr: sys.AddrOf(o.noticeBytes[:]), Len: noticeLen})
	o.wrs = append(o.wrs, verbs.SendWR{Op: verbs.OpSendImm, Flags: verbs.Inline, Imm: number & numberMask, First: uint32(len(o.sges) - 1), Count: 1})
}
