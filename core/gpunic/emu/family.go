// SPDX-License-Identifier: MIT

package emu

import (
	"fmt"

	"mori/core/gpunic/mlx5"
)

// A family is how the queues of NICs other than mlx5 are written. Only they are other: queues are
// made and connected by mlx5's commands, since the firmware's of these NICs are behind drivers.
// What lies where in the memory of a queue is in the comment of Options.Family.
//
// Entries become those of mlx5, which the rest of the NIC carries out, and its errors become the
// family's.
type family interface {
	// entryBytes is the size of a place in the ring.
	entryBytes() uint64
	// ringLog is how many entries a ring has, 1<<ringLog of them, in the memory of 1<<log blocks.
	ringLog(log uint32) uint32
	// produced reads a doorbell of a queue pair: how many entries there are, modulo a power of two, or
	// why it means nothing.
	produced(q *qp, bell uint64) (count, modulo uint64, err error)
	// consumed reads a doorbell of a completion queue in the same way.
	consumed(c *cq, bell uint64) (count, modulo uint64, err error)
	// parse takes the entry apart whose bytes are in raw.
	parse(q *qp, e *entry) error
	// numbered checks what the poster says of the entry's packets, which have their numbers now.
	numbered(q *qp, e *entry) error
	// completions report an entry. Flushed entries have none in some families.
	completions(q *qp, e *entry, s mlx5.Syndrome) [][]byte
	// lap is where completions have the bit that changes with each lap over the ring, and what it is
	// in the first.
	lap() (at int, first byte)
}

// familyCQEBytes is the size of a completion entry of families.
const familyCQEBytes = 32

func familyOf(o *Options) (family, error) {
	switch o.Family {
	case "":
		return nil, nil
	case "bnxt":
		return bnxtFamily{}, nil
	case "ionic1":
		return ionicFamily{1}, nil
	case "ionic2":
		return ionicFamily{2}, nil
	}
	return nil, fmt.Errorf("open %s: NIC of the family %q, want bnxt, ionic1, ionic2 or none: %w", o.Name, o.Family, mlx5.ErrArgument)
}

// ringLog is how many blocks, or entries, the send queue has.
func (q *qp) ringLog() uint32 {
	if f := q.nic.family; f != nil {
		return f.ringLog(q.ctx.LogSQSize)
	}
	return q.ctx.LogSQSize
}

// ringBytes is the size of a block of the send queue, or of an entry.
func (q *qp) ringBytes() uint64 {
	if f := q.nic.family; f != nil {
		return f.entryBytes()
	}
	return mlx5.BlockBytes
}

// listenFamily looks, when it is time, at the value of the last doorbell.
func (q *qp) listenFamily(due bool) {
	if !due {
		return
	}
	count, modulo, err := q.nic.family.produced(q, q.bell)
	if err != nil {
		q.nic.violate("queue pair %#x: %v", q.num, err)
		q.fail()
		return
	}
	q.advance(uint32((count - uint64(q.known)) % modulo))
}

// rungFamily takes a doorbell.
func (q *qp) rungFamily(v uint64) {
	if q.ctx.State == mlx5.StateRST {
		q.nic.violate("doorbell of queue pair %#x in state RST", q.num)
		return
	}
	q.ring(v)
}

// readFamily copies the next entry and takes it apart.
func (q *qp) readFamily() *entry {
	e := &entry{at: q.fetched, index: uint16(q.fetched), blocks: 1, raw: make([]byte, q.ringBytes())}
	if err := q.block(q.fetched, e.raw); err != nil {
		e.fault = mlx5.SyndromeOperation
		return e
	}
	if err := q.nic.family.parse(q, e); err != nil {
		q.nic.violate("queue pair %#x, entry %d: %v", q.num, e.index, err)
		e.fault = mlx5.SyndromeOperation
	}
	return e
}

// entryBytes is the size of an entry of the completion queue.
func (c *cq) entryBytes() uint64 {
	if c.nic.family != nil {
		return familyCQEBytes
	}
	return mlx5.CQEBytes
}

// lap is where entries of the completion queue have the bit that changes with each lap, and what it
// is in the first.
func (c *cq) lap() (at int, first byte) {
	if f := c.nic.family; f != nil {
		return f.lap()
	}
	return mlx5.CQEBytes - 1, 0
}

// unread is how many entries of a family's completion queue were not read. Doorbells of it may be
// lost to us, but not the last one.
func (c *cq) unread() (uint64, error) {
	var b [8]byte
	if err := c.dbrMem.Read(c.dbr, b[:]); err != nil {
		return 0, err
	}
	if v := le.Uint64(b[:]); v != 0 {
		count, modulo, err := c.nic.family.consumed(c, v)
		if err != nil {
			return 0, err
		}
		c.read += (count - c.read) % modulo
	}
	return c.produced - c.read, nil
}
