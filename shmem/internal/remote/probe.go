// SPDX-License-Identifier: MIT

package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/peers"
)

// A probe tries the way to each PE before the World counts on it: NICs that are there may be on
// different networks, behind a switch that drops their packets, or not let at memory. Every PE
// writes a word to every other one. That also connects them, so that the first put does not wait
// for it.
type probe struct {
	n       *Network
	words   []byte // one for each PE to write to, and the one that this PE writes
	base    uint64
	regions *Regions
}

// newProbe registers the words. That a NIC does not take even these is an error.
func (n *Network) newProbe() (*probe, error) {
	t := &probe{n: n, words: make([]byte, (n.pes.N+1)*8)}
	t.base = memory.AddrOf(t.words)
	memory.Store64(t.word(n.pes.N), uint64(n.pes.Me)+1)
	r, err := n.Extend(nil, t.base, uint64(len(t.words)), false)
	if err != nil {
		return nil, err
	}
	t.regions = r
	if failed := n.unpinned.Load(); failed != nil {
		return t, *failed
	}
	return t, nil
}

// word is the address of a word.
func (t *probe) word(i int) uint64 { return t.base + uint64(i)*8 }

// run writes to all and looks at what came from them. Collective.
func (t *probe) run(ctx context.Context) error {
	n := t.n
	waits := make([]*waiter, n.pes.N)
	errs := make([]error, n.pes.N)
	theirs, deadline := t.regions.theirs, time.Now().Add(t.patience())
	for pe := range n.pes.N {
		if len(theirs[pe]) > 0 {
			waits[pe] = newWaiter()
			errs[pe] = n.transfer(fabric.OpWrite, pe, t.regions, uint64(n.pes.Me)*8, t.word(n.pes.N), 8, waits[pe])
		}
	}
	for pe, wait := range waits {
		if wait != nil {
			_, errs[pe] = n.ops.waitUntil(deadline, wait, pe, errs[pe])
		}
	}
	err := errors.Join(errs...)
	if err = n.pes.AllWell(ctx, err); err != nil {
		return err
	}
	for pe := range n.pes.N {
		if len(theirs[pe]) > 0 && memory.Load64(t.word(pe)) != uint64(pe)+1 {
			err = errors.Join(err, fmt.Errorf("PE %d has written, but nothing arrived: %w", pe, peers.ErrUnreachable))
		}
	}
	return n.pes.AllWell(ctx, err)
}

// patience is how long a probe may take, so that there is time left for another transport. A NIC
// gives up after some seconds by itself.
func (t *probe) patience() time.Duration {
	if t.n.pes.Timeout <= 0 {
		return longestProbe
	}
	return min(longestProbe, t.n.pes.Timeout/3)
}

const longestProbe = time.Minute

// close takes the words back.
func (t *probe) close() error {
	if t == nil {
		return nil
	}
	return t.regions.Close()
}
