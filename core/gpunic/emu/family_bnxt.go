// SPDX-License-Identifier: MIT

package emu

import (
	"fmt"

	"mori/core/gpunic/bnxt"
	"mori/core/gpunic/emu/wire"
	"mori/core/gpunic/mlx5"
)

type bnxtFamily struct{ ownPage }

var _ family = bnxtFamily{}

func (bnxtFamily) blockBytes() uint64 { return bnxt.EntryBytes }

// An entry is as long as two blocks. The table after the ring uses the rest of the memory of four
// blocks for each entry.
func (bnxtFamily) ringLog(log uint32) uint32 { return max(log, 2) - 2 }

// read extracts the count from a doorbell.
func (bnxtFamily) read(v uint64, number uint32, kind uint8, log uint32) (count, modulo uint64, err error) {
	b, err := bnxt.ParseBell(v)
	switch {
	case err != nil:
		return 0, 0, err
	case b.Type != kind || b.Queue != number || b.Index>>log != 0:
		return 0, 0, fmt.Errorf("doorbell %+v, want type %d, queue %#x and an index below 1<<%d: %w", b, kind, number, log, bnxt.ErrFormat)
	}
	return b.Count(log), 2 << log, nil
}

func (f bnxtFamily) produced(r *sendRing) (count, modulo uint64, err error) {
	return f.read(r.bell, r.num, bnxt.BellSend, r.log())
}

func (f bnxtFamily) consumed(c *cq) (count, modulo uint64, err error) {
	v, err := f.rung(c)
	if v == 0 || err != nil {
		return c.read, 1, err
	}
	return f.read(v, c.num, bnxt.BellCompletion, c.log)
}

var bnxtOpcodes = map[uint8]uint8{
	bnxt.OpSend: mlx5.OpSend, bnxt.OpSendImm: mlx5.OpSendImm, bnxt.OpWrite: mlx5.OpWrite, bnxt.OpWriteImm: mlx5.OpWriteImm, bnxt.OpRead: mlx5.OpRead,
	bnxt.OpCompareSwap: mlx5.OpCompareSwap, bnxt.OpFetchAdd: mlx5.OpFetchAdd,
}

func (bnxtFamily) parse(_ *sendRing, e *entry) error {
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

func (f bnxtFamily) numbered(r *sendRing, e *entry) error {
	size := uint64(1) << r.log()
	slot := uint64(e.at) & (size - 1)
	var b [bnxt.RowBytes]byte
	if err := r.mem.Read(r.addr+size*bnxt.EntryBytes+slot*bnxt.RowBytes, b[:]); err != nil {
		return err
	}
	row := bnxt.ParseRow(le.Uint64(b[:]))
	if want := (bnxt.Row{Index: uint16(slot), Start: e.first, Next: (e.first + uint32(e.packets)) & wire.SeqMask}); row != want {
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

// After an error, an entry follows that ends the queue pair. Drivers generate the flushed
// completions themselves.
func (bnxtFamily) completions(r *sendRing, e *entry, s mlx5.Syndrome) [][]byte {
	if s == mlx5.SyndromeFlush {
		return nil
	}
	status, known := bnxtStatuses[s]
	if !known {
		status = bnxt.StatusOperation
	}
	c := bnxt.CQE{Handle: uint64(r.num), Index: uint16((e.at + 1) & (1<<r.log() - 1)), Type: bnxt.CQERequester, Status: status}
	all := [][]byte{make([]byte, bnxt.CQEBytes)}
	c.Put(all[0])
	if s != 0 {
		all = append(all, make([]byte, bnxt.CQEBytes))
		bnxt.CQE{Handle: uint64(r.num), Type: bnxt.CQETerminal}.Put(all[1])
	}
	return all
}

func (bnxtFamily) lap() (at int, first byte) { return 24, 1 }
