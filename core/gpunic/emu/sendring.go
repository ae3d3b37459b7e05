// SPDX-License-Identifier: MIT

package emu

import (
	"mori/core/gpunic/emu/memory"
	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
)

// A sendRing is the ring of a send queue. The NIC reads an entry in three steps: it sees a
// doorbell, it reads the number of blocks from the doorbell record (or the doorbell itself), and it
// copies the blocks. Posters must write in the opposite order. Counts of blocks do not wrap at the
// ring's end.
type sendRing struct {
	*end
	mem    memory.Memory
	addr   uint64
	record memory.Record
	uar    *uar

	known   uint32 // blocks that the NIC knows of
	fetched uint32 // of those, blocks that were read
	lookAt  uint64 // round in which to handle the doorbell; 0 is none
	bell    uint64 // its value
}

// sendWord is the offset of the send queue's counter in the doorbell record.
const sendWord = 4

// log returns the log2 of the ring's number of blocks.
func (r *sendRing) log() uint32 { return r.family.ringLog(r.ctx.LogSQSize) }

// ring handles the value of a doorbell, now or later.
func (r *sendRing) ring(v uint64) {
	r.bell = v
	if r.lookAt == 0 {
		r.lookAt = r.round
		if late := r.opts.Chaos.LateDoorbell; late > 0 {
			r.lookAt = r.within(late)
			r.stats.Late++
		}
	}
}

// look checks for new blocks when a doorbell is due. oldest is the count of the oldest incomplete
// block. ok is false if the poster made a mistake that ends the queue pair.
func (r *sendRing) look(oldest uint32) (busy, ok bool) {
	due := r.lookAt != 0 && r.round >= r.lookAt
	if due {
		r.lookAt = 0
	} else if !r.opts.Chaos.Prefetch || !r.family.prefetches(r) {
		return false, true
	}
	count, modulo, err := r.family.produced(r)
	if err != nil {
		r.violate("queue pair %#x: %v", r.num, err)
		return true, false
	}
	more := uint32((count - uint64(r.known)) % modulo)
	if more == 0 {
		return due, true
	}
	if r.known+more-oldest > 1<<r.log() {
		if r.ctx.State == mlx5.StateERR {
			return due, true
		}
		r.violate("queue pair %#x: %d more blocks with %d pending, the ring has 1<<%d", r.num, more, r.known-oldest, r.log())
		return true, false
	}
	r.known += more
	if !due {
		r.stats.Prefetched++
	}
	return true, true
}

// pending reports whether there are unread entries.
func (r *sendRing) pending() bool { return r.fetched != r.known }

// next copies and parses the next entry. If the entry is invalid, next sets its error.
func (r *sendRing) next() *entry {
	e := &entry{at: r.fetched, index: uint16(r.fetched), blocks: 1}
	e.raw = make([]byte, r.family.blockBytes(), 4*mlx5.BlockBytes)
	if err := r.block(r.fetched, e.raw); err != nil {
		e.fault = mlx5.SyndromeOperation
	} else if err := r.family.parse(r, e); err != nil {
		r.violate("queue pair %#x, entry %d: %v", r.num, e.index, err)
		e.fault = mlx5.SyndromeOperation
	}
	r.fetched += uint32(e.blocks)
	return e
}

// block copies one block of the ring.
func (r *sendRing) block(at uint32, b []byte) error {
	slot, size := uint64(at&(1<<r.log()-1)), r.family.blockBytes()
	return r.mem.Read(r.addr+slot*size, b[:size])
}

// reset forgets all entries.
func (r *sendRing) reset() { r.known, r.fetched, r.lookAt = 0, 0, 0 }

// A uar is a page of doorbells.
type uar struct {
	page, addr uint64
	free       func() error
	users      int
}

const registerAt = 0x800 // in a UAR page: MLX5_BF_OFFSET

// take takes the doorbell's value, 0 if there was none or the page is unmapped.
func (u *uar) take() (v uint64) {
	_ = sys.Guard(func() {
		if sys.Load64(u.addr) != 0 {
			v = sys.Swap64(u.addr, 0)
		}
	})
	return v
}
