// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"fmt"
	"sort"
	"syscall"
	"time"

	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// The states of a slot's op.
const (
	slotFree   = iota
	slotHeld   // in a lane
	slotPosted // with libfabric
)

// A slot is a pending op.
type slot struct {
	op    fabric.Op
	lane  *lane
	key   uint64 // libfabric's, of a remote region
	seq   uint64 // in order of submission
	next  int32  // in the lane
	state uint8
}

// A table has the slots of an endpoint: first those of sends, RMA and atomics, then those of
// receives. Guarded by endpoint.mu.
type table struct {
	slots    []slot
	tx, rx   []int32 // free ones
	contexts uint64  // C memory: libfabric's context of each op
	injects  uint64  // C memory: the bytes of OpInject ops
	inject   uint64  // bytes of it for each op
	seq      uint64
}

func (t *table) open(l fabric.Limits) error {
	n := l.TxSize + l.RxSize
	t.inject = max(l.MaxInject, 1)
	t.contexts, t.injects = lf.Memory(n, lf.ContextSize), lf.Memory(l.TxSize, int(t.inject))
	if t.contexts == 0 || t.injects == 0 {
		t.close()
		return fmt.Errorf("open endpoint for %d ops: %w", n, syscall.ENOMEM)
	}
	t.slots = make([]slot, n)
	for i := int32(n) - 1; i >= 0; i-- {
		if int(i) < l.TxSize {
			t.tx = append(t.tx, i)
		} else {
			t.rx = append(t.rx, i)
		}
	}
	return nil
}

// close frees the C memory. libfabric must have no op any more.
func (t *table) close() {
	lf.Free(t.contexts)
	lf.Free(t.injects)
	t.contexts, t.injects = 0, 0
}

// free returns the free slots for ops of this kind.
func (t *table) free(kind fabric.OpKind) *[]int32 {
	if kind == fabric.OpRecv {
		return &t.rx
	}
	return &t.tx
}

// take fills a free slot. There must be one.
func (t *table) take(op *fabric.Op) int32 {
	free := t.free(op.Kind)
	i := (*free)[len(*free)-1]
	*free = (*free)[:len(*free)-1]
	t.seq++
	t.slots[i] = slot{op: *op, seq: t.seq, next: -1, state: slotHeld}
	return i
}

// give frees a slot.
func (t *table) give(i int32) {
	free := t.free(t.slots[i].op.Kind)
	t.slots[i] = slot{}
	*free = append(*free, i)
}

// context returns the address of a slot's C memory.
func (t *table) context(i int32) uint64 { return t.contexts + uint64(i)*lf.ContextSize }

// find returns the slot whose C memory is at ctx and whose op is with libfabric.
func (t *table) find(ctx uint64) (int32, bool) {
	i := (ctx - t.contexts) / lf.ContextSize
	if ctx < t.contexts || i >= uint64(len(t.slots)) || t.context(int32(i)) != ctx || t.slots[i].state != slotPosted {
		return 0, false
	}
	return int32(i), true
}

// each calls fn for the pending ops in order of submission. fn may end them.
func (t *table) each(fn func(i int32, s *slot)) {
	var busy []int32
	for i := range t.slots {
		if t.slots[i].state != slotFree {
			busy = append(busy, int32(i))
		}
	}
	sort.Slice(busy, func(a, b int) bool { return t.slots[busy[a]].seq < t.slots[busy[b]].seq })
	for _, i := range busy {
		fn(i, &t.slots[i])
	}
}

// A lane is the queue of ops to one peer that libfabric has not accepted yet.
type lane struct {
	addr       fabric.Addr
	peer       uint64 // fi_addr_t
	head, tail int32  // slots, -1 for none
	posted     int    // ops that libfabric has
	gone       bool   // the address vector does not have addr any more

	since time.Time // when libfabric had no op of this lane and stopped accepting any
	lost  bool      // it accepted none before patience was over
}

// libfabric returns FI_EAGAIN while it connects a datagram endpoint to a peer. Some providers never
// stop if no peer listens.
const (
	patience     = 15 * time.Second
	lostPatience = 100 * time.Millisecond // with a peer that was never reached
)

// unreachable reports whether patience with the lane's peer is over. It is called when libfabric
// did not accept the lane's first op.
func (l *lane) unreachable() bool {
	now := time.Now()
	limit := patience
	if l.lost {
		limit = lostPatience
	}
	switch {
	case l.addr == "" || l.posted > 0:
		l.since = time.Time{}
		return false
	case l.since.IsZero():
		l.since = now
		return false
	case now.Sub(l.since) < limit:
		return false
	}
	l.since, l.lost = now, true
	return true
}

func (l *lane) reset(peer uint64) { l.peer, l.head, l.tail, l.posted = peer, -1, -1, 0 }

func (l *lane) push(t *table, i int32) {
	t.slots[i].lane, t.slots[i].next = l, -1
	if l.tail < 0 {
		l.head = i
	} else {
		t.slots[l.tail].next = i
	}
	l.tail = i
}

// pop removes and returns the first op. There must be one.
func (l *lane) pop(t *table) int32 {
	i := l.head
	if l.head = t.slots[i].next; l.head < 0 {
		l.tail = -1
	}
	return i
}

// remove removes slot i from the queue.
func (l *lane) remove(t *table, i int32) {
	first := l.head
	l.head, l.tail = -1, -1
	for first >= 0 {
		next := t.slots[first].next
		if first != i {
			l.push(t, first)
		}
		first = next
	}
}
