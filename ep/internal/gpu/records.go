// SPDX-License-Identifier: MIT

package gpu

import (
	"fmt"

	"mori/ep/internal/plan"
	"mori/native/abi"
	"mori/shmem"
)

// records is symmetric memory for what is sent to ranks of other hosts, and the offsets in it.
type records struct {
	base                           uint64 // 0: not allocated
	chunkFlags, rowFlags, requests uint64
	outgoing, incoming, rows, sums uint64
	peerBytes, size                uint64
}

// layOut sets the offsets. chunk is the size of a chunk in bytes.
func (r *records) layOut(h *hosts, c *plan.Config, l *plan.Layout, chunk int) {
	far := c.WorldSize - h.perHost
	peers, served := h.peers(c), 1
	if h.hierarchical {
		served = h.perHost
	}
	tokens := uint64(c.MaxNumInpToken)
	row := uint64(c.HiddenDim) * uint64(c.MaxTokenTypeSize)
	record := round(row) + uint64(served+1)*plan.Int32Bytes + 2*l.WeightBytes() + l.ScaleBytes() + 16
	least := (tokens + abi.EPMostChunks - 1) / abi.EPMostChunks * record
	// The last chunk may have room that tokens do not fill.
	r.peerBytes = round(tokens*record + min(max(least, uint64(chunk)), tokens*record) + abi.EPMostChunks*abi.EPHeadBytes)
	at := uint64(0)
	take := func(n uint64) (begin uint64) {
		begin, at = at, at+round(n)
		return begin
	}
	r.chunkFlags = take(uint64(peers) * abi.EPMostChunks * plan.WordBytes)
	r.rowFlags = take(uint64(far) * abi.EPMostChunks * plan.WordBytes)
	r.requests = take(2 * uint64(c.WorldSize) * plan.LineBytes)
	r.outgoing, r.incoming = take(uint64(peers)*r.peerBytes), take(uint64(peers)*r.peerBytes)
	rows := tokens * uint64(min(far, c.TopK))
	inward := round(rows*row) + round(rows*uint64(l.ScaleBlocks)*plan.Float32Bytes) + rows*l.WeightBytes()
	if h.sums() {
		sums := uint64(peers) * tokens * (row + l.WeightBytes() + 2*16)
		r.sums, inward = take(sums), max(inward, sums)
	}
	r.rows = take(inward)
	r.size = at
}

// allocate makes the memory. Collective.
func (r *records) allocate(w *shmem.World) (err error) {
	if r.base, err = w.MallocAlign(plan.Alignment, r.size); err != nil {
		err = fmt.Errorf("allocate the buffers of an op for rows between hosts: %w", err)
	}
	return err
}

// free releases the memory. Collective.
func (r *records) free(w *shmem.World) error {
	if r.base == 0 {
		return nil
	}
	base := r.base
	r.base = 0
	return w.Free(base)
}
