// SPDX-License-Identifier: MIT

package emu

import (
	"fmt"

	"mori/core/gpunic/mlx5"
)

// A family is how the queues of a vendor's NICs are written. Only the queues differ: they are made
// and connected by mlx5's commands in every family, since the firmware of the other NICs is behind
// drivers. The comment of Options.Family says what lies where in the memory of a queue.
//
// Entries become those of mlx5, which the rest of the NIC carries out, and its errors become the
// family's.
type family interface {
	// blockBytes is the size of a block of a send ring; cqeBytes is the size of a completion.
	blockBytes() uint64
	cqeBytes() uint64
	// ringLog is how many blocks a send ring has, 1<<ringLog of them, in the memory of 1<<log blocks
	// of mlx5.
	ringLog(log uint32) uint32

	// target returns the number of the queue pair that a doorbell on the page of queue pair own is
	// for.
	target(bell uint64, own uint32) uint32
	// prefetches reports whether the number of blocks can be known without a doorbell.
	prefetches(r *sendRing) bool
	// produced returns how many blocks of the ring are published, modulo a power of two, or why the
	// doorbell means nothing.
	produced(r *sendRing) (count, modulo uint64, err error)
	// consumed returns how many completions were read, in the same way. count is c.read at first.
	consumed(c *cq) (count, modulo uint64, err error)

	// parse takes the entry apart whose first block is in e.raw.
	parse(r *sendRing, e *entry) error
	// numbered checks what the poster says of the entry's packets, which have their numbers now.
	numbered(r *sendRing, e *entry) error

	// completions report an entry. Flushed entries have none in some families.
	completions(r *sendRing, e *entry, s mlx5.Syndrome) [][]byte
	// lap is where completions have the bit that changes with each lap over the ring, and what it is
	// in the first.
	lap() (at int, first byte)
}

func familyOf(o *Options) (family, error) {
	switch o.Family {
	case "":
		return mlx5Family{}, nil
	case "bnxt":
		return bnxtFamily{}, nil
	case "ionic1":
		return ionicFamily{version: 1}, nil
	case "ionic2":
		return ionicFamily{version: 2}, nil
	}
	return nil, fmt.Errorf("open %s: NIC of the family %q, want bnxt, ionic1, ionic2 or none: %w", o.Name, o.Family, mlx5.ErrArgument)
}

// ownPage is of families in which a doorbell page belongs to one queue pair, whose doorbells have
// all that there is to know. Their completions have 32 bytes.
type ownPage struct{}

func (ownPage) cqeBytes() uint64                   { return 32 }
func (ownPage) target(_ uint64, own uint32) uint32 { return own }
func (ownPage) prefetches(*sendRing) bool          { return false }

// rung returns the last doorbell of a completion queue, which its reader leaves in the record; 0 if
// none has rung.
func (ownPage) rung(c *cq) (uint64, error) {
	var b [8]byte
	err := c.record.Mem.Read(c.record.Addr, b[:])
	return le.Uint64(b[:]), err
}
