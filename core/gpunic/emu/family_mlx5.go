// SPDX-License-Identifier: MIT

package emu

import (
	"encoding/binary"
	"fmt"

	"mori/core/gpunic/mlx5"
)

type mlx5Family struct{}

var _ family = mlx5Family{}

func (mlx5Family) blockBytes() uint64        { return mlx5.BlockBytes }
func (mlx5Family) cqeBytes() uint64          { return mlx5.CQEBytes }
func (mlx5Family) ringLog(log uint32) uint32 { return log }

// bellControl decodes a doorbell, which is the first 8 bytes of the last posted entry.
func bellControl(v uint64) mlx5.Control {
	var b [mlx5.SegmentBytes]byte
	le.PutUint64(b[:], v)
	return mlx5.ParseControl(b[:])
}

func (mlx5Family) target(bell uint64, _ uint32) uint32 { return bellControl(bell).QPN }

func (mlx5Family) prefetches(r *sendRing) bool { return r.ctx.SendDBRMode != mlx5.DBRNone }

func (mlx5Family) produced(r *sendRing) (count, modulo uint64, err error) {
	if r.ctx.SendDBRMode == mlx5.DBRNone {
		c := bellControl(r.bell)
		return uint64(c.Index) + uint64(c.Blocks()), 1 << 16, nil
	}
	return uint64(r.record.Word(sendWord)), 1 << 16, nil
}

func (mlx5Family) consumed(c *cq) (count, modulo uint64, err error) {
	var b [4]byte
	err = c.record.Mem.Read(c.record.Addr, b[:])
	return uint64(binary.BigEndian.Uint32(b[:])), seqModulo, err
}

const seqModulo = 1 << 24 // of counters with 24 bits

func (mlx5Family) parse(r *sendRing, e *entry) error {
	published := r.known - r.fetched
	e.Control = mlx5.ParseControl(e.raw)
	n := e.Blocks()
	fits := n > 0 && uint32(n) <= published
	switch {
	case r.ctx.State == mlx5.StateERR && fits:
		e.blocks = n
		return nil
	case e.Index != e.index || e.QPN != r.num || !fits:
		return fmt.Errorf("entry of queue pair %#x with index %d and %d segments, %d blocks were published: %w",
			e.QPN, e.Index, e.Segments, published, mlx5.ErrFormat)
	}
	e.blocks = n
	e.raw = append(e.raw, make([]byte, (n-1)*mlx5.BlockBytes)...)
	for i := 1; i < n; i++ {
		if err := r.block(r.fetched+uint32(i), e.raw[i*mlx5.BlockBytes:]); err != nil {
			return err
		}
	}
	return e.Parse(e.raw)
}

func (mlx5Family) numbered(*sendRing, *entry) error { return nil }

// Results of up to 32 bytes may be in the completion itself.
func (mlx5Family) completions(r *sendRing, e *entry, s mlx5.Syndrome) [][]byte {
	c := mlx5.CQE{Opcode: mlx5.CQEReq, WQEOpcode: e.Opcode, QPN: r.num, Counter: e.index}
	switch {
	case s != 0:
		c.Opcode, c.Syndrome, c.Vendor = mlx5.CQEReqError, s, e.vendor
	case e.answers():
		c.Bytes = uint32(e.Bytes())
	}
	if e.inline != nil {
		c.Format = 1
	}
	b := make([]byte, mlx5.CQEBytes)
	c.Put(b)
	copy(b[:32], e.inline)
	return [][]byte{b}
}

func (mlx5Family) lap() (at int, first byte) { return mlx5.CQEBytes - 1, 0 }
