// SPDX-License-Identifier: MIT

package emu

import (
	"mori/core/gpunic/emu/memory"
	"mori/core/gpunic/mlx5"
)

// A receiveQueue is the ring of receive entries, which say where the peer's sends go.
type receiveQueue struct {
	*end
	mem    memory.Memory
	addr   uint64
	record memory.Record
	cq     *cq

	taken  uint32 // entries
	warned bool
}

// receiveWord is the offset of the receive queue's counter in the doorbell record.
const receiveWord = 0

// entryBytes returns the size of an entry, at least 16 bytes.
func (q *receiveQueue) entryBytes() uint64 { return 16 << q.ctx.LogRQStride }

// empty reports whether there are no entries.
func (q *receiveQueue) empty() bool {
	return q.ctx.RQType != mlx5.RQRegular || uint16(q.record.Word(receiveWord)) == uint16(q.taken)
}

// take takes the next entry. There must be one.
func (q *receiveQueue) take() (into []mlx5.Data, index uint16, err error) {
	b := make([]byte, q.entryBytes())
	slot := uint64(q.taken & (1<<q.ctx.LogRQSize - 1))
	if err := q.mem.Read(q.addr+slot*q.entryBytes(), b); err != nil {
		return nil, 0, err
	}
	index = uint16(q.taken)
	q.taken++
	for ; len(b) >= mlx5.SegmentBytes; b = b[mlx5.SegmentBytes:] {
		d := mlx5.ParseData(b)
		if d.Key == mlx5.InvalidLKey {
			break
		}
		into = append(into, d)
	}
	return into, index, nil
}

// complete writes the completion of an entry.
func (q *receiveQueue) complete(index uint16, c mlx5.CQE) {
	c.QPN, c.Counter = q.num, index
	q.cq.add(c)
}

// fail completes an entry with an error.
func (q *receiveQueue) fail(index uint16, s mlx5.Syndrome) {
	q.complete(index, mlx5.CQE{Opcode: mlx5.CQERecvError, Syndrome: s})
}

// flush completes all entries as flushed.
func (q *receiveQueue) flush() {
	for !q.empty() && !q.cq.broken {
		q.fail(uint16(q.taken), mlx5.SyndromeFlush)
		q.taken++
	}
}

// check records, once, entries that were posted although there is no ring.
func (q *receiveQueue) check() {
	if !q.warned && q.ctx.RQType == mlx5.RQNone && q.record.Word(receiveWord) != 0 {
		q.warned = true
		q.violate("queue pair %#x: the receive counter moved without a receive queue", q.num)
	}
}

func (q *receiveQueue) reset() { q.taken, q.warned = 0, false }
