// SPDX-License-Identifier: MIT

package remote

import (
	"errors"
	"fmt"
	"time"

	"mori/core/fabric"
	"mori/shmem/internal/peers"
)

// Fence orders earlier puts to each PE before later ones. It does not block: the next operation to
// each PE carries the fence.
func (n *Network) Fence() error {
	n.fences.Add(1)
	return nil
}

// Quiet waits until all queued ops have completed, and returns the first error. A zero deadline
// means none. After a timeout, incomplete ops still own their memory.
func (n *Network) Quiet(deadline time.Time) error {
	p := n.ops
	if !p.epochs.empty() {
		if err := p.epochs.quiet(n.pes, deadline); err != nil {
			return err
		}
	}
	if p.failed.Load() != nil {
		if failed := p.failed.Swap(nil); failed != nil {
			return p.diagnose(*failed)
		}
	}
	return nil
}

// submit posts operation i with pending fences.
func (n *Network) submit(i int, op fabric.Op) error {
	f := &n.ops.ops[i]
	p := &n.peers[f.pe]
	op.Kind, op.Dest, op.Ctx = f.kind, p.dest, uint64(i)
	p.mu.Lock()
	defer p.mu.Unlock()
	if count := n.fences.Load(); p.fenced != count {
		op.Flags |= fabric.OpFence
		p.fenced = count
	}
	p.ops[0] = op
	for deadline := n.pes.Deadline(); ; time.Sleep(fullNap) {
		_, err := n.ep.Submit(p.ops[:])
		if err == nil {
			return nil
		}
		if errors.Is(err, fabric.ErrAgain) {
			if err = n.pes.Check(); err == nil {
				if deadline.IsZero() || time.Now().Before(deadline) {
					continue
				}
				err = peers.ErrTimeout
			}
		}
		err = fmt.Errorf("PE %d: %w", f.pe, err)
		n.ops.release(i)
		return err
	}
}
