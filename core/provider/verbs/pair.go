// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/provider/internal/local"
	"mori/native/verbs"
)

// A pair is a queue pair with its pending work requests. They complete in the order of posting, so
// one completion covers all earlier ones, too.
type pair struct {
	rail   *rail
	qp     verbs.QP
	num    uint32
	index  int // among the rail's
	maxSGE int
	inline int

	maxSGERead int // of a read: some devices scatter less than they gather

	wire *wire // nil: its receives are for remote data of writes

	recvs   recvBuffers
	credits atomic.Int32 // sends that the peer has receives for
	most    int32        // of credits

	mu         sync.Mutex
	ring       []*posting // of the work requests under way, by their number
	head, tail uint64     // numbers of the oldest and of the next
	unsignaled int        // posted since the last one that requests a completion
	waiting    []part     // for room in the ring
	broken     error      // if set, nothing is posted any more
	dry        bool       // a receive was flushed
}

// newPair makes a queue pair, not connected, with receives of slot bytes.
func newPair(r *rail, s *Settings, sends, recvs, slot int) (*pair, error) {
	n := r.nic
	in := verbs.QPInit{
		SendCQ: r.cq, RecvCQ: r.cq, SendWR: sends, RecvWR: recvs, SendSGE: max(1, min(s.SendSGE, n.attr.MaxSGE)), RecvSGE: 1,
		Inline: s.Inline,
	}
	qp, num, got, err := n.pd.NewQP(in)
	if err != nil && in.Inline > 0 { // devices do not report their limit
		in.Inline = 0
		qp, num, got, err = n.pd.NewQP(in)
	}
	if err != nil {
		return nil, err
	}
	if s.Inline == 0 { // some devices give more than requested
		got.Inline = 0
	}
	p := &pair{rail: r, qp: qp, num: num, index: len(r.pairs), maxSGE: min(in.SendSGE, got.SendSGE), inline: got.Inline, ring: make([]*posting, in.SendWR)}
	p.maxSGERead = p.maxSGE
	if most := n.attr.MaxSGERead; most > 0 {
		p.maxSGERead = min(p.maxSGERead, most)
	}
	if err := p.recvs.open(n.pd, recvs, slot); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// close destroys the queue pair. Afterwards the NIC accesses no memory for it.
func (p *pair) close() error { return errors.Join(p.qp.Close(), p.recvs.close()) }

// add posts a part, as far as the ring has room. completed posts the rest.
func (p *pair) add(w part) {
	p.mu.Lock()
	if p.broken != nil {
		err := p.broken
		p.mu.Unlock()
		w.fail(err)
		return
	}
	p.waiting = append(p.waiting, w)
	err := p.feed()
	p.mu.Unlock()
	if err != nil {
		p.rail.fail(err)
	}
}

// feed posts waiting parts while the ring has room. The caller holds mu.
func (p *pair) feed() error {
	for len(p.waiting) > 0 && p.broken == nil {
		w := &p.waiting[0]
		n := min(w.to-w.from, len(p.ring)-int(p.tail-p.head))
		if n == 0 {
			return nil
		}
		if most := p.rail.path.all.settings.PostBatch; most > 0 {
			n = min(n, most)
		}
		wrs := w.of.wrs[w.from : w.from+n]
		full := int(p.tail-p.head)+n == len(p.ring)
		for i := range wrs {
			p.number(&wrs[i], w.of, i, i == n-1 && (full || n == w.to-w.from && w.of.buffer == nil))
		}
		taken, err := p.qp.PostSend(wrs, w.of.sges)
		p.tail += uint64(taken)
		w.from += taken
		if err != nil {
			p.broken = fmt.Errorf("post to queue pair %d of %s: %w: %w", p.num, p.rail, err, fabric.ErrConnReset)
			return p.broken
		}
		if w.from == w.to {
			p.waiting = p.waiting[:copy(p.waiting, p.waiting[1:])]
		}
	}
	return nil
}

// number assigns a number to the i-th work request after tail. It requests a completion for every
// quarter of the ring and for the last one.
func (p *pair) number(wr *verbs.SendWR, of *posting, i int, last bool) {
	wr.ID = p.tail + uint64(i)
	p.ring[wr.ID%uint64(len(p.ring))] = of
	p.unsignaled++
	if last || p.unsignaled >= (len(p.ring)+3)/4 {
		wr.Flags |= verbs.Signaled
		p.unsignaled = 0
	}
}

// A share is how many work requests of a posting have ended.
type share struct {
	of *posting
	n  int32
}

// completed handles a completion: the work requests up to its number have ended. It appends them,
// by posting, to to. An error means that the pair has failed.
func (p *pair) completed(wc *verbs.WC, to []share) ([]share, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wc.ID < p.head || wc.ID >= p.tail {
		return to, fmt.Errorf("completion of work request %d on queue pair %d, where %d to %d are pending: %w", wc.ID, p.num, p.head, p.tail, fabric.ErrProtocol)
	}
	whole, good := p.broken == nil, wc.Status == verbs.StatusSuccess
	if whole && !good {
		why := p.fault(wc)
		p.ring[wc.ID%uint64(len(p.ring))].failed(why)
		p.broken = local.OpFault(fabric.ErrConnReset, "%v, so the following work was not executed", why)
	}
	for ; p.head <= wc.ID; p.head++ {
		at := &p.ring[p.head%uint64(len(p.ring))]
		if !whole && !good {
			(*at).failed(p.broken)
		}
		if k := len(to) - 1; k >= 0 && to[k].of == *at {
			to[k].n++
		} else {
			to = append(to, share{*at, 1})
		}
		*at = nil
	}
	switch {
	case p.broken == nil:
		return to, p.feed()
	case whole:
		return to, p.broken
	}
	return to, nil
}

// flushed handles a flushed receive. If no failure of this side is known, the peer has made an
// invalid access.
func (p *pair) flushed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil || p.dry {
		return nil
	}
	p.dry = true
	return local.OpFault(fabric.ErrConnReset, "queue pair %d of %s failed: %s made an invalid access, or failed itself", p.num, p.rail, p.rail.path.port.Peer())
}

// fault returns the error of a failed work request. If the target denied it, that is not ErrAccess,
// because ops are checked against the grant before they are posted. It means that the region was
// deregistered without revocation. For example, the kernel ends a killed process in this way,
// regions first.
func (p *pair) fault(wc *verbs.WC) error {
	return local.OpFault(fabric.ErrConnReset, "queue pair %d of %s to %s: %v (status %d, vendor's syndrome %#x)", p.num, p.rail, p.rail.path.port.Peer(), wc.Status,
		uint32(wc.Status), wc.VendorErr)
}

// shut makes the NIC flush the pending work requests, and returns the parts that were not posted.
func (p *pair) shut(cause error) []part {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := p.waiting
	p.waiting = nil
	if p.broken == nil {
		p.broken = cause
	}
	if err := p.qp.Fail(); err != nil { // the work then ends when the queue pair is destroyed
		p.rail.path.log.Debug("verbs: put a queue pair into error", "qp", p.num, "error", err)
	}
	return rest
}

// abandon returns what the NIC has not completed and never will, because the queue pair is
// destroyed.
func (p *pair) abandon() []share {
	p.mu.Lock()
	defer p.mu.Unlock()
	var rest []share
	for ; p.head < p.tail; p.head++ {
		at := &p.ring[p.head%uint64(len(p.ring))]
		rest = append(rest, share{*at, 1})
		*at = nil
	}
	return rest
}

// idle reports whether no work request is pending.
func (p *pair) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.head == p.tail
}
