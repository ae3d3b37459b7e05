// SPDX-License-Identifier: MIT

package emu

import (
	"fmt"

	"mori/core/gpunic/mlx5"
)

// A family implements the queue format of a vendor's NICs. Only the queues differ. mlx5 commands
// make and connect them in every family, since the firmware of the other NICs is only accessible
// through drivers. The comment of Options.Family describes the layout of a queue's memory.
//
// Entries are converted to mlx5's, which the rest of the NIC executes, and mlx5's errors are
// converted to the family's.
type family interface {
	// blockBytes is the size of a block of a send ring; cqeBytes is the size of a completion.
	blockBytes() uint64
	cqeBytes() uint64
	// ringLog returns the log2 of the number of blocks of a send ring in the memory of 1<<log mlx5
	// blocks.
	ringLog(log uint32) uint32

	// target returns the number of the queue pair that a doorbell on the page of queue pair own is
	// for.
	target(bell uint64, own uint32) uint32
	// prefetches reports whether the NIC can learn the number of blocks without a doorbell.
	prefetches(r *sendRing) bool
	// produced returns how many blocks of the ring are published, modulo a power of two, or an error
	// if the doorbell is invalid.
	produced(r *sendRing) (count, modulo uint64, err error)
	// consumed returns how many completions were read, in the same way. Initially count is c.read.
	consumed(c *cq) (count, modulo uint64, err error)

	// parse parses the entry whose first block is in e.raw.
	parse(r *sendRing, e *entry) error
	// numbered checks the packet numbers that the poster wrote against the entry's, which are assigned
	// now.
	numbered(r *sendRing, e *entry) error

	// completions returns the completions of an entry. Some families write none for flushed entries.
	completions(r *sendRing, e *entry, s mlx5.Syndrome) [][]byte
	// lap returns the position of the bit in a completion that toggles with each lap over the ring,
	// and its value in the first lap.
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

// ownPage is embedded by families in which a doorbell page belongs to one queue pair and the
// doorbell itself contains all information. Their completions have 32 bytes.
type ownPage struct{}

func (ownPage) cqeBytes() uint64                   { return 32 }
func (ownPage) target(_ uint64, own uint32) uint32 { return own }
func (ownPage) prefetches(*sendRing) bool          { return false }

// rung returns the last doorbell of a completion queue, which its reader writes to the record, or 0
// if there was none.
func (ownPage) rung(c *cq) (uint64, error) {
	var b [8]byte
	err := c.record.Mem.Read(c.record.Addr, b[:])
	return le.Uint64(b[:]), err
}
