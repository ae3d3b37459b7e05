// SPDX-License-Identifier: MIT

package emu

import (
	"fmt"

	"mori/core/gpunic/emu/wire"
	"mori/core/gpunic/ionic"
	"mori/core/gpunic/mlx5"
)

type ionicFamily struct {
	ownPage
	version ionic.Version
}

var _ family = ionicFamily{}

func (ionicFamily) blockBytes() uint64        { return ionic.EntryBytes }
func (ionicFamily) ringLog(log uint32) uint32 { return log }

// read extracts the count from a doorbell.
func (ionicFamily) read(v uint64, number, log uint32) (count, modulo uint64, err error) {
	b, err := ionic.ParseBell(v)
	switch {
	case err != nil:
		return 0, 0, err
	case b.Queue != number || b.Index>>log != 0:
		return 0, 0, fmt.Errorf("doorbell %+v, want queue %#x and an index below 1<<%d: %w", b, number, log, ionic.ErrFormat)
	}
	return uint64(b.Index), 1 << log, nil
}

func (f ionicFamily) produced(r *sendRing) (count, modulo uint64, err error) {
	return f.read(r.bell, r.num, r.log())
}

func (f ionicFamily) consumed(c *cq) (count, modulo uint64, err error) {
	v, err := f.rung(c)
	if v == 0 || err != nil {
		return c.read, 1, err
	}
	return f.read(v, c.num, c.log)
}

var ionicOpcodes = [...]uint8{
	ionic.OpSend: mlx5.OpSend, ionic.OpSendImm: mlx5.OpSendImm, ionic.OpRead: mlx5.OpRead, ionic.OpWrite: mlx5.OpWrite,
	ionic.OpWriteImm: mlx5.OpWriteImm, ionic.OpCompareSwap: mlx5.OpCompareSwap, ionic.OpFetchAdd: mlx5.OpFetchAdd,
}

func (f ionicFamily) parse(r *sendRing, e *entry) error {
	var i ionic.Entry
	if err := i.Parse(e.raw, f.version); err != nil {
		return err
	}
	log := r.log()
	if first := e.at>>log&1 == 0; i.Index != uint64(e.at&(1<<log-1)) || i.Flags&ionic.FlagColor != 0 != first {
		return fmt.Errorf("index %d and flags %#x in slot %d of lap %d: %w", i.Index, i.Flags, e.at&(1<<log-1), e.at>>log, ionic.ErrFormat)
	}
	e.Entry = mlx5.Entry{
		Control: mlx5.Control{Opcode: ionicOpcodes[i.Op], Imm: i.Imm}, Remote: mlx5.Remote{Addr: i.Remote, Key: i.RKey},
		Atomic: mlx5.Atomic{Width: 8, Swap: i.Swap, Compare: i.Compare}, Inline: i.Inline,
	}
	if i.Flags&ionic.FlagSignaled != 0 {
		e.Flags |= mlx5.FlagSignalled
	}
	if i.Flags&ionic.FlagFence != 0 {
		e.Flags |= mlx5.FlagFence
	}
	for _, d := range i.Data {
		e.Data = append(e.Data, mlx5.Data{Bytes: d.Bytes, Key: d.Key, Addr: d.Addr})
	}
	return nil
}

func (ionicFamily) numbered(*sendRing, *entry) error { return nil }

var ionicStatuses = map[mlx5.Syndrome]ionic.Status{
	0: ionic.StatusOK, mlx5.SyndromeLength: ionic.StatusLength, mlx5.SyndromeOperation: ionic.StatusOperation,
	mlx5.SyndromeProtection: ionic.StatusProtection, mlx5.SyndromeBind: ionic.StatusMemory, mlx5.SyndromeBadResponse: ionic.StatusBadResponse,
	mlx5.SyndromeLocalAccess: ionic.StatusLocalAccess, mlx5.SyndromeRemoteInvalid: ionic.StatusRemoteInvalid,
	mlx5.SyndromeRemoteAccess: ionic.StatusRemoteAccess, mlx5.SyndromeRemoteOp: ionic.StatusRemoteOp, mlx5.SyndromeRetry: ionic.StatusRetry,
	mlx5.SyndromeRNR: ionic.StatusRNR,
}

// After an error, an entry follows that flushes all others.
func (ionicFamily) completions(r *sendRing, e *entry, s mlx5.Syndrome) [][]byte {
	if s == mlx5.SyndromeFlush {
		return nil
	}
	status, known := ionicStatuses[s]
	if !known {
		status = ionic.StatusOperation
	}
	all := [][]byte{make([]byte, ionic.CQEBytes)}
	ionic.CQE{MSN: (e.at + 1) & wire.SeqMask, Status: status, Queue: r.num, Type: ionic.CQESendMSN, Error: s != 0}.Put(all[0])
	if s != 0 {
		all = append(all, make([]byte, ionic.CQEBytes))
		ionic.CQE{Status: ionic.StatusFlush, Queue: r.num, Type: ionic.CQESendNPG, Error: true}.Put(all[1])
	}
	return all
}

func (ionicFamily) lap() (at int, first byte) { return 31, 1 }
