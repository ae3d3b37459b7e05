// SPDX-License-Identifier: MIT

package emu

import (
	"encoding/binary"

	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
)

// An entry is read in three steps: a doorbell is seen, the doorbell record (or the doorbell itself)
// has the number of blocks, and the blocks are copied. Posters must write in the opposite
// order.

// listen looks at the doorbell and, when it is time, at what it is about.
func (q *qp) listen() (busy bool) {
	if v := swapBell(q.uar.addr); v != 0 {
		busy = true
		q.rung(v)
	}
	if q.ctx.State == mlx5.StateRST {
		return busy
	}
	due := q.lookAt != 0 && q.nic.round >= q.lookAt
	if due {
		q.lookAt = 0
	}
	switch {
	case q.nic.family != nil:
		q.listenFamily(due)
	case q.ctx.SendDBRMode == mlx5.DBRNone:
		if due {
			c := bellControl(q.bell)
			q.learn(c.Index + uint16(c.Blocks()))
		}
	case due || q.nic.opts.Chaos.Prefetch:
		before := q.known
		q.learn(uint16(q.record(4)))
		if q.known != before && !due {
			q.nic.stats.Prefetched++
			busy = true
		}
	}
	return busy || due
}

// rung takes a doorbell: the first 8 bytes of the last entry that was posted.
func (q *qp) rung(v uint64) {
	if q.nic.family != nil {
		q.rungFamily(v)
		return
	}
	c := bellControl(v)
	to := q.nic.qps[c.QPN]
	switch {
	case to == nil || to.uar != q.uar:
		q.nic.violate("doorbell %#x of queue pair %#x: unknown queue pair", v, c.QPN)
		return
	case to.ctx.State == mlx5.StateRST:
		q.nic.violate("doorbell of queue pair %#x in state RST", c.QPN)
		return
	}
	to.ring(v)
}

// ring has the queue pair look at the value of a doorbell, now or later.
func (q *qp) ring(v uint64) {
	q.bell = v
	if q.lookAt == 0 {
		q.lookAt = q.nic.round
		if late := q.nic.opts.Chaos.LateDoorbell; late > 0 {
			q.lookAt += uint64(q.nic.rnd.IntN(late))
			q.nic.stats.Late++
		}
	}
}

func bellControl(v uint64) mlx5.Control {
	var b [mlx5.SegmentBytes]byte
	binary.LittleEndian.PutUint64(b[:], v)
	return mlx5.ParseControl(b[:])
}

// swapBell takes what the doorbell holds. A page that is gone has none.
func swapBell(addr uint64) (v uint64) {
	var err error
	defer guard(&err)()
	if sys.Load64(addr) == 0 {
		return 0
	}
	return sys.Swap64(addr, 0)
}

// record reads a word of the doorbell record: 0 is the receive counter, 4 the send counter.
func (q *qp) record(at uint64) uint32 {
	var b [4]byte
	if err := q.dbrMem.Read(q.dbr+at, b[:]); err != nil {
		return 0
	}
	return binary.BigEndian.Uint32(b[:])
}

// learn takes a new producer index.
func (q *qp) learn(index uint16) { q.advance(uint32(index - uint16(q.known))) }

// advance takes blocks that the NIC did not know of.
func (q *qp) advance(more uint32) {
	if more == 0 {
		return
	}
	oldest := q.fetched
	if len(q.entries) > 0 {
		oldest = q.entries[0].at
	}
	if q.known+more-oldest > 1<<q.ringLog() {
		if q.ctx.State != mlx5.StateERR {
			q.nic.violate("queue pair %#x: %d more blocks with %d pending, the ring has 1<<%d", q.num, more, q.known-oldest, q.ringLog())
			q.fail()
		}
		return
	}
	q.known += more
}

const maxUnderWay = 64 // entries that were fetched and are not complete

// fetch copies entries. In state ERR it completes them as flushed.
func (q *qp) fetch() (busy bool) {
	if q.ctx.State != mlx5.StateRTS && q.ctx.State != mlx5.StateERR {
		return false
	}
	for q.fetched != q.known && len(q.entries) < maxUnderWay {
		busy = true
		e := q.read()
		q.fetched += uint32(e.blocks)
		if q.ctx.State == mlx5.StateERR {
			q.complete(e, mlx5.SyndromeFlush)
			continue
		}
		q.entries = append(q.entries, e)
	}
	return busy
}

// read copies the next entry and takes it apart. What is wrong with it becomes its error.
func (q *qp) read() *entry {
	if q.nic.family != nil {
		return q.readFamily()
	}
	e := &entry{at: q.fetched, index: uint16(q.fetched), blocks: 1}
	e.raw = make([]byte, mlx5.BlockBytes, 4*mlx5.BlockBytes)
	if err := q.block(q.fetched, e.raw); err != nil {
		e.fault = mlx5.SyndromeOperation
		return e
	}
	c := mlx5.ParseControl(e.raw)
	e.Control = c
	n := c.Blocks()
	switch {
	case q.ctx.State == mlx5.StateERR && n > 0 && uint32(n) <= q.known-q.fetched:
		e.blocks = n
		return e
	case c.Index != e.index || c.QPN != q.num || n == 0 || uint32(n) > q.known-q.fetched:
		q.nic.violate("queue pair %#x, block %d: entry of queue pair %#x with index %d and %d segments, %d blocks were published",
			q.num, e.index, c.QPN, c.Index, c.Segments, q.known-q.fetched)
		e.fault = mlx5.SyndromeOperation
		return e
	}
	e.blocks = n
	for i := 1; i < n; i++ {
		e.raw = append(e.raw, make([]byte, mlx5.BlockBytes)...)
		if err := q.block(q.fetched+uint32(i), e.raw[i*mlx5.BlockBytes:]); err != nil {
			e.fault = mlx5.SyndromeOperation
			return e
		}
	}
	if err := e.Parse(e.raw); err != nil {
		q.nic.violate("queue pair %#x, block %d: %v", q.num, e.index, err)
		e.fault = mlx5.SyndromeOperation
	}
	return e
}

// block copies one block of the ring.
func (q *qp) block(at uint32, b []byte) error {
	slot, size := uint64(at&(1<<q.ringLog()-1)), q.ringBytes()
	return q.work.mem.Read(q.sq+slot*size, b[:size])
}
