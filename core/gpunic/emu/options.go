// SPDX-License-Identifier: MIT

package emu

import (
	"fmt"
	"math/rand/v2"

	"mori/core/gpunic/mlx5"
)

// Options configure a NIC. The zero value is a NIC named emu0 that connects only to itself.
type Options struct {
	Name  string
	Wire  string // "loop", "unix" or "tcp"
	Seed  uint64 // of the chaos
	Chaos Chaos
	MTU   int // of its port, 4096 if 0

	// Family selects the queue format: "bnxt", "ionic1" or "ionic2" (ionic has two versions of its
	// formats); "" is mlx5. The same commands make and connect the queues, but without a receive
	// queue.
	//
	// With bnxt, the send queue's memory of 1<<log blocks of 64 bytes has 1<<(log-2) entries, followed
	// by the table of packets. With ionic it has 1<<log entries. A completion queue has as many
	// entries as it was made with, of 32 bytes each. The register of a send queue is its UAR. That of
	// a completion queue is the 8 bytes of its doorbell record.
	Family string

	// UAR allocates the n bytes of a doorbell page, zeroed and page-aligned, and returns a function
	// that frees them. nil uses memory of this process. A GPU needs doorbells in memory that is mapped
	// for it.
	UAR func(n int) (addr uint64, free func() error, err error)
}

// A Chaos is the unusual behavior of a NIC. Rounds are those of its loop, which runs a few per
// microsecond.
type Chaos struct {
	// Prefetch makes it read entries as soon as the doorbell record changes, without a doorbell.
	Prefetch bool
	// LateDoorbell is the most rounds between a doorbell and reading the record. Further doorbells in
	// that time are merged into one.
	LateDoorbell int
	// DelayCQE is the most rounds by which a completion is delayed.
	DelayCQE int
	// TwoStepCQE writes wrong bytes of a completion before the right ones. Its last byte makes it
	// valid.
	TwoStepCQE bool
	// Relaxed writes lines of 64 bytes in any order, and after later writes, to regions that allow it
	// (mlx5.AccessRelaxed).
	Relaxed bool
	// Loss, Duplicate and Reorder are the probabilities, in 1/1000, that a packet is lost, duplicated
	// or reordered.
	Loss, Duplicate, Reorder int
	// FailAt makes the nth executed entry (from 1) fail with FailWith; 0 is none.
	FailAt   uint64
	FailWith mlx5.Syndrome
}

// Profile returns the chaos of a seed. Each seed has another mix, and 0 has none. FailAt is not
// set.
func Profile(seed uint64) Chaos {
	if seed == 0 {
		return Chaos{}
	}
	r := rand.New(rand.NewPCG(seed, 0xe0))
	some := func(n int) int { return r.IntN(2) * r.IntN(n) }
	return Chaos{
		Prefetch: r.IntN(2) == 0, LateDoorbell: some(200), DelayCQE: some(300), TwoStepCQE: r.IntN(2) == 0, Relaxed: r.IntN(2) == 0,
		Loss: some(30), Duplicate: some(30), Reorder: some(60),
	}
}

func (o *Options) complete() error {
	if o.Name == "" {
		o.Name = "emu0"
	}
	if o.Wire == "" {
		o.Wire = "loop"
	}
	if o.MTU == 0 {
		o.MTU = 4096
	}
	for _, mtu := range []int{256, 512, 1024, 2048, 4096} {
		if o.MTU == mtu {
			return nil
		}
	}
	return fmt.Errorf("open %s: packets of %d bytes, want 256, 512, 1024, 2048 or 4096: %w", o.Name, o.MTU, mlx5.ErrArgument)
}
