// SPDX-License-Identifier: MIT

package pybind

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"mori/core/device"
	"mori/core/memory"
	"mori/shmem"
)

// signalTime bounds a run of BenchSignal.
const signalTime = time.Minute

// BenchSignal lets a kernel put 8 bytes with a signal to the other of PEs 0 and 1, and answer what comes, rounds times: both call it at once.
// words are 384 symmetric bytes whose last 128 begin with the signal; first is how many rounds were made with them. It returns the
// nanoseconds of one way, and the word at the signal then counts rounds+1 more.
func BenchSignal(gpu int, words uint64, first uint64, rounds int) (ns float64, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return 0, err
	}
	d, err := gpuAt(gpu)
	if err != nil {
		return 0, err
	}
	if p.MyPE() > 1 || p.NPEs() < 2 || rounds < 1 {
		return 0, fmt.Errorf("measure signals, PE %d of %d, %d rounds: %w", p.MyPE(), p.NPEs(), rounds, shmem.ErrInvalid)
	}
	m, err := d.LoadKernels("shmem_signal_rounds")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if _, err := p.ModuleInit(m.Handle()); err != nil {
		return 0, err
	}
	return runSignals(d, m, words, first, rounds)
}

func runSignals(d *device.Device, m *device.Module, words, first uint64, rounds int) (ns float64, err error) {
	f, err := m.Function("mori_shmem_signal_rounds")
	if err != nil {
		return 0, err
	}
	s, err := d.NewStream(device.Normal)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	result, err := d.AllocHost(16)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, result.Close()) }()
	var args device.Args
	args.Uint64(words).Uint64(first).Uint64(uint64(rounds)).Uint64(result.DeviceAddr())
	if err := f.Launch(s, device.Grid{Threads: [3]uint32{32}}, &args); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), signalTime)
	defer cancel()
	if err := s.Wait(ctx); err != nil {
		return 0, err
	}
	told := memory.Bytes(result.Addr(), 16)
	if wrong := binary.LittleEndian.Uint64(told[8:]); wrong != 0 {
		return 0, fmt.Errorf("%d of %d signals came before their words", wrong, rounds+1)
	}
	return float64(binary.LittleEndian.Uint64(told)) / float64(rounds) / 2, nil
}
