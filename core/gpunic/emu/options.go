// SPDX-License-Identifier: MIT

package emu

import (
	"fmt"
	"math/rand/v2"

	"mori/core/gpunic/mlx5"
)

// Options are what a NIC is like. The zero value is a NIC named emu0 that talks to itself.
type Options struct {
	Name  string
	Wire  string // "loop", "unix" or "tcp"
	Seed  uint64 // of the chaos
	Chaos Chaos
	MTU   int // of its port, 4096 if 0

	// Family has the NIC read and write the queues of another family's NICs: "bnxt", or "ionic1" and
	// "ionic2" by the version of the formats; "" is mlx5. Queues are made and connected as ever,
	// without a receive queue. Then the send queue's memory, of 1<<log blocks of 64 bytes, has 1<<log
	// entries of ionic, or 1<<(log-2) entries of bnxt and behind them the table of packets; a
	// completion queue has as many entries as it was made with, of 32 bytes. The register of a send
	// queue is its UAR, that of a completion queue the 8 bytes of its doorbell record.
	Family string

	// UAR makes the n bytes that a doorbell page takes, zeroed and on a page boundary, and what frees
	// them; nil is memory of this process. A GPU rings doorbells in memory that is mapped for it.
	UAR func(n int) (addr uint64, free func() error, err error)
}

// A Chaos is what a NIC does beyond the ordinary. Numbers of rounds are of its loop, a few of which
// pass in a microsecond.
type Chaos struct {
	// Prefetch has it read entries as soon as the doorbell record moves, with no doorbell rung.
	Prefetch bool
	// LateDoorbell is up to how many rounds pass until it looks at the record after a doorbell; others
	// that come meanwhile are one with it.
	LateDoorbell int
	// DelayCQE is up to how many rounds a completion waits.
	DelayCQE int
	// TwoStepCQE has completions show wrong bytes before the right ones, until their last byte says
	// that they are valid.
	TwoStepCQE bool
	// Relaxed has lines of 64 bytes written in any order to regions that allow it
	// (mlx5.AccessRelaxed), and after later writes.
	Relaxed bool
	// Loss, Duplicate and Reorder are the chance, of 1000, for a packet to be that.
	Loss, Duplicate, Reorder int
	// FailAt ends the nth entry that is carried out (from 1) with the error FailWith; 0 is none.
	FailAt   uint64
	FailWith mlx5.Syndrome
}

// Profile is the mix of a seed: each has another one, and 0 is none. It has no FailAt.
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
