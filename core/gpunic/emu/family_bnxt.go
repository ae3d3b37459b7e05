// SPDX-License-Identifier: MIT

package emu

import (
	"fmt"

	"mori/core/gpunic/bnxt"
	"mori/core/gpunic/mlx5"
)

type bnxtFamily struct{}

var _ family = bnxtFamily{}

func (bnxtFamily) entryBytes() uint64 { return bnxt.EntryBytes }

// An entry has the size of two blocks, and the table behind the ring takes the rest of what would
// be four.
func (bnxtFamily) ringLog(log uint32) uint32 { return max(log, 2) - 2 }

func (bnxtFamily) bell(v uint64, number uint32, kind uint8, log uint32) (count, modulo uint64, err error) {
	b, err := bnxt.ParseBell(v)
	switch {
	case err != nil:
		return 0, 0, err
	case b.Type != kind || b.Queue != number || b.Index>>log != 0:
		return 0, 0, fmt.Errorf("doorbell %+v, want type %d, queue %#x and an index below 1<<%d: %w", b, kind, number, log, bnxt.ErrFormat)
	}
	return b.Count(log), 2 << log, nil
}

func (f bnxtFamily) produced(q *qp, v uint64) (count, modulo uint64, err error) {
	return f.bell(v, q.num, bnxt.BellSend, q.ringLog())
}

func (f bnxtFamily) consumed(c *cq, v uint64) (count, modulo uint64, err error) {
	return f.bell(v, c.num, bnxt.BellCompletion, c.log)
}

var bnxtOpcodes = map[uint8]uint8{
	bnxt.OpSend: mlx5.OpSend, bnxt.OpSendImm: mlx5.OpSendImm, bnxt.OpWrite: mlx5.OpWrite, bnxt.OpWriteImm: mlx5.OpWriteImm, bnxt.OpRead: mlx5.OpRead,
	bnxt.OpCompareSwap: mlx5.OpCompareSwap, bnxt.OpFetchAdd: mlx5.OpFetchAdd,
}

func (bnxtFamily) parse(q *qp, e *entry) error {
	var b bnxt.Entry
	if err := b.Parse(e.raw); err != nil {
		return err
	}
	e.Entry = mlx5.Entry{
		Control: mlx5.Control{Opcode: bnxtOpcodes[b.Opcode], Imm: b.Imm}, Remote: mlx5.Remote{Addr: b.Remote, Key: b.RKey},
		Atomic: mlx5.Atomic{Width: 8, Swap: b.Swap, Compare: b.Compare}, Inline: b.Inline,
	}
	if b.Flags&bnxt.FlagSignaled != 0 {
		e.Flags |= mlx5.FlagSignalled
	}
	if b.Flags&(bnxt.FlagFence|bnxt.FlagReadFence) != 0 {
		e.Flags |= mlx5.FlagFence
	}
	for _, d := range b.Data {
		e.Data = append(e.Data, mlx5.Data{Bytes: d.Bytes, Key: d.Key, Addr: d.Addr})
	}
	return nil
}

func (f bnxtFamily) numbered(q *qp, e *entry) error {
	size := uint64(1) << q.ringLog()
	place := uint64(e.at) & (size - 1)
	var b [bnxt.RowBytes]byte
	if err := q.work.mem.Read(q.sq+size*bnxt.EntryBytes+place*bnxt.RowBytes, b[:]); err != nil {
		return err
	}
	row := bnxt.ParseRow(le.Uint64(b[:]))
	if want := (bnxt.Row{Index: uint16(place), Start: e.first, Next: (e.first + uint32(e.packets)) & seqMask}); row != want {
		return fmt.Errorf("row %+v of the table of packets, want %+v: %w", row, want, bnxt.ErrFormat)
	}
	return nil
}

var bnxtStatuses = map[mlx5.Syndrome]bnxt.Status{
	0: bnxt.StatusOK, mlx5.SyndromeLength: bnxt.StatusLength, mlx5.SyndromeOperation: bnxt.StatusOperation,
	mlx5.SyndromeProtection: bnxt.StatusProtection, mlx5.SyndromeBind: bnxt.StatusMemory, mlx5.SyndromeBadResponse: bnxt.StatusBadResponse,
	mlx5.SyndromeRemoteInvalid: bnxt.StatusRemoteInvalid, mlx5.SyndromeRemoteAccess: bnxt.StatusRemoteAccess,
	mlx5.SyndromeRemoteOp: bnxt.StatusRemoteOp, mlx5.SyndromeRetry: bnxt.StatusRetry, mlx5.SyndromeRNR: bnxt.StatusRNR,
}

// An error is followed by an entry that ends the queue pair; drivers make up what is
// flushed.
func (bnxtFamily) completions(q *qp, e *entry, s mlx5.Syndrome) [][]byte {
	if s == mlx5.SyndromeFlush {
		return nil
	}
	status, known := bnxtStatuses[s]
	if !known {
		status = bnxt.StatusOperation
	}
	c := bnxt.CQE{Handle: uint64(q.num), Index: uint16((e.at + 1) & (1<<q.ringLog() - 1)), Type: bnxt.CQERequester, Status: status}
	all := [][]byte{make([]byte, bnxt.CQEBytes)}
	c.Put(all[0])
	if s != 0 {
		all = append(all, make([]byte, bnxt.CQEBytes))
		bnxt.CQE{Handle: uint64(q.num), Type: bnxt.CQETerminal}.Put(all[1])
	}
	return all
}

func (bnxtFamily) lap() (at int, first byte) { return 24, 1 }
