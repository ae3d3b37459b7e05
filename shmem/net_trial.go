// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mori/core/fabric"
	"mori/core/memory"
)

// A trial tries the way to each PE before the World counts on it: NICs that are there may be on different networks, behind a switch that drops their
// packets, or not let at memory. Every PE writes a word to every other one. That also connects them, so that the first put does not
// wait for it.
type trial struct {
	block // of words: one for each PE to write to, and the one that this PE writes
	n     *wire
	words []byte
}

// newTrial registers the words. That a NIC does not take even these is an error.
func (n *wire) newTrial() (*trial, error) {
	t := &trial{n: n, words: make([]byte, (n.w.pes.N+1)*8)}
	t.base, t.size = memory.AddrOf(t.words), uint64(len(t.words))
	memory.Store64(t.word(n.w.pes.N), uint64(n.w.pes.Me)+1)
	r, err := n.extend(&t.block, t.size, &offer{})
	if err != nil {
		return nil, err
	}
	t.reach.Store(r)
	if failed := n.unpinned.Load(); failed != nil {
		return t, *failed
	}
	return t, nil
}

// word is the address of a word.
func (t *trial) word(i int) uint64 { return t.base + uint64(i)*8 }

// run writes to all and looks at what came from them. Collective.
func (t *trial) run(ctx context.Context) error {
	n, w := t.n, t.n.w
	waits := make([]*waiter, w.pes.N)
	errs := make([]error, w.pes.N)
	theirs, deadline := t.reach.Load().theirs, time.Now().Add(w.patience())
	for pe := range w.pes.N {
		if len(theirs[pe]) > 0 {
			waits[pe] = newWaiter()
			errs[pe] = n.transfer(fabric.OpWrite, pe, &t.block, uint64(w.pes.Me)*8, t.word(w.pes.N), 8, waits[pe])
		}
	}
	for pe, wait := range waits {
		if wait != nil {
			_, errs[pe] = n.waitUntil(deadline, wait, pe, errs[pe])
		}
	}
	err := errors.Join(errs...)
	if err = w.pes.AllWell(ctx, err); err != nil {
		return err
	}
	for pe := range w.pes.N {
		if len(theirs[pe]) > 0 && memory.Load64(t.word(pe)) != uint64(pe)+1 {
			err = errors.Join(err, fmt.Errorf("PE %d has written, and nothing has come: %w", pe, ErrUnreachable))
		}
	}
	return w.pes.AllWell(ctx, err)
}

// patience is how long a trial may take, so that there is time left for another transport. A NIC gives up after some seconds by itself.
func (w *World) patience() time.Duration {
	if w.pes.Timeout <= 0 {
		return longestTrial
	}
	return min(longestTrial, w.pes.Timeout/3)
}

const longestTrial = time.Minute

// close takes the words back.
func (t *trial) close() error {
	if t == nil {
		return nil
	}
	return t.reach.Load().close()
}
