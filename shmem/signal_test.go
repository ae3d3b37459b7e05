// SPDX-License-Identifier: MIT

package shmem

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"mori/core/fabric"
)

// TestSignalComesAfterTheBytes: a PE that sees the signal sees the bytes that were put with it, or
// before it and a fence.
func TestSignalComesAfterTheBytes(t *testing.T) {
	const n, rounds = 3000, 100
	const sig, ack = 8192, 8320
	onEveryPath(t, 2, 16384, func(t *testing.T, w *World, mem uint64) error {
		own := ownMemory(t, n)
		for round := uint64(1); round <= rounds; round++ {
			want := filled(n, int(round))
			if w.MyPE() == 0 {
				poke(t, w, own, want)
				var err error
				switch round % 4 {
				case 0:
					err = w.PutSignal(mem, own, n, mem+sig, round, SignalSet, 1)
				case 1:
					err = w.PutSignalNbi(mem, own, n, mem+sig, 1, SignalAdd, 1)
				case 2:
					err = errors.Join(w.Put(mem, own, n, 1), w.Fence(), w.SignalAdd(mem+sig, 1, 1))
				case 3:
					err = errors.Join(w.PutNbi(mem, own, n, 1), w.Fence(), w.PutSignal(0, 0, 0, mem+sig, round, SignalSet, 1))
				}
				if err = errors.Join(err, w.Quiet()); err == nil {
					_, err = w.SignalWaitUntil(mem+ack, CmpEQ, round)
				}
				if err != nil {
					return err
				}
				continue
			}
			seen, err := w.SignalWaitUntil(mem+sig, CmpGE, round)
			if err != nil || seen != round {
				return fmt.Errorf("signal %d in round %d: %w", seen, round, err)
			}
			if !bytes.Equal(peek(t, w, mem, n), want) {
				return fmt.Errorf("round %d: the signal came before the bytes", round)
			}
			if now, err := w.SignalFetch(mem + sig); now != round || err != nil {
				return fmt.Errorf("signal %d: %w", now, err)
			}
			if err := w.SignalSet(mem+ack, round, 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestFenceOrdersPuts: of two puts with a fence between, nobody sees the second alone.
func TestFenceOrdersPuts(t *testing.T) {
	const rounds = 2000
	onEveryPath(t, 2, 4096, func(t *testing.T, w *World, mem uint64) error {
		own := ownMemory(t, 64)
		for round := uint64(1); w.MyPE() == 0 && round <= rounds; round++ {
			setWord(t, w, own, round)
			err := errors.Join(w.Put(mem, own, 8, 1), w.Fence(), w.Put(mem+1024, own, 8, 1))
			if round%64 == 0 {
				err = errors.Join(err, w.Quiet())
			}
			if err != nil {
				return err
			}
		}
		for last := uint64(0); w.MyPE() == 1 && last < rounds; {
			if err := w.WaitUntil(mem+1024, fabric.Uint64, CmpGT, last); err != nil {
				return err
			}
			last = getWord(t, w, mem+1024)
			if first := getWord(t, w, mem); first < last {
				return fmt.Errorf("second put %d, first %d", last, first)
			}
		}
		return w.Quiet()
	})
}

func TestBadSignals(t *testing.T) {
	onHeaps(t, 2, func(w *World) error {
		mem, err := w.Malloc(256)
		if err != nil {
			return err
		}
		own := ownMemory(t, 64)
		setWord(t, w, own, 7)
		put := func(dest, src, n, sig uint64, op SignalOp, pe int) func() error {
			return func() error {
				nbi := w.PutSignalNbi(dest, src, n, sig, 1, op, pe)
				if err := w.PutSignal(dest, src, n, sig, 1, op, pe); err == nil || nbi == nil {
					return nil
				}
				return nbi
			}
		}
		err = allRefused([]refusal{
			{"op 0", ErrInvalid, put(mem, own, 8, mem+64, 0, 1)},
			{"op 11", ErrInvalid, put(mem, own, 8, mem+64, 11, 1)},
			{"PE 2", ErrInvalid, put(mem, own, 8, mem+64, SignalSet, 2)},
			{"signal between words", ErrInvalid, put(mem, own, 8, mem+66, SignalSet, 1)},
			{"signal among the bytes", ErrInvalid, put(mem, own, 24, mem+16, SignalSet, 1)},
			{"signal that begins before the bytes", ErrInvalid, put(mem+4, own, 24, mem, SignalSet, 1)},
			{"signal in local memory", ErrNotSym, put(mem, own, 8, own+8, SignalAdd, 1)},
			{"bytes to local memory", ErrNotSym, put(own, own, 8, mem+64, SignalAdd, 1)},
			{"bytes from nil", ErrInvalid, put(mem, 0, 8, mem+64, SignalAdd, 1)},
			{"bytes from nowhere", ErrInvalid, put(mem, 1<<46, 8, mem+64, SignalAdd, 1)},
			{"set between words", ErrInvalid, func() error { return w.SignalSet(mem+1, 1, 1) }},
			{"add in local memory", ErrNotSym, func() error { return w.SignalAdd(own, 1, 1) }},
		})
		if err := errors.Join(err, w.BarrierAll()); err != nil {
			return err
		}
		if !bytes.Equal(peek(t, w, mem, 256), make([]byte, 256)) {
			t.Error("something was touched")
		}
		return w.Free(mem)
	})
}
