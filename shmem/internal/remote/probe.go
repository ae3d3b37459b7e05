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

// A probe tests the connection to each PE before the World relies on it. NICs may be on different
// networks, a switch may drop their packets, or they may lack access to memory. Every PE writes a
// word to every other PE. This also sets up connections, so the first put does not wait for it.
type probe struct {
	n       *Network
	words   []byte // one word for each PE to write to, and the word that this PE writes
	base    uint64
	regions *Regions
}

// newProbe registers the words. A NIC that cannot register even these is an error.
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

// run writes to all PEs and checks what arrived from them. Collective.
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

// patience limits the probe, so that time remains for another transport. A NIC stops retrying after
// some seconds by itself.
func (t *probe) patience() time.Duration {
	if t.n.pes.Timeout <= 0 {
		return longestProbe
	}
	return min(longestProbe, t.n.pes.Timeout/3)
}

const longestProbe = time.Minute

// close deregisters the words.
func (t *probe) close() error {
	if t == nil {
		return nil
	}
	return t.regions.Close()
}
