// SPDX-License-Identifier: MIT

package gpu

import (
	"errors"
	"fmt"

	"mori/core/device"
	"mori/shmem/internal/peers"
)

// BarrierOnStream queues a barrier of all PEs on a stream of this PE's GPU: a cudaStream_t or
// hipStream_t, or 0 for the default stream. Earlier puts of each PE, on this stream or by host
// calls, are visible to later work on the streams of all PEs. It does not block. Collective: all
// PEs call in the same order.
func (k *Kernels) BarrierOnStream(stream uint64) error {
	if err := k.barrierOn(stream); err != nil {
		return fmt.Errorf("barrier on stream %#x: %w", stream, err)
	}
	return nil
}

func (k *Kernels) barrierOn(stream uint64) error {
	if err := k.pes.Check(); err != nil {
		return err
	}
	if k.side == nil {
		return fmt.Errorf("the symmetric heap is in host memory: %w", errors.ErrUnsupported)
	}
	if s := k.side; !s.reachesAll() {
		return fmt.Errorf("the GPU does not reach the memory of %s: %w: %w", peers.NameAll(s.far), s.remote.whyNot(), errors.ErrUnsupported)
	}
	if k.side.env.Net != nil {
		if err := k.side.env.Net.Quiet(k.pes.Deadline()); err != nil {
			return err
		}
	}
	f, err := k.side.kernel()
	if err != nil {
		return err
	}
	s := k.side.env.GPU.Device.ExternalStream(stream)
	if err := k.side.env.GPU.Follow(s); err != nil {
		return err
	}
	return k.side.launch(f, s)
}

// launch queues the barrier's kernel on a stream, followed by an event.
func (s *Side) launch(f *device.Function, on *device.Stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.met[on.Handle()]
	if e == nil {
		var err error
		if e, err = s.env.GPU.Device.NewEvent(); err != nil {
			return err
		}
		if s.met == nil {
			s.met = map[uint64]*device.Event{}
		}
		s.met[on.Handle()] = e
	}
	if err := f.Launch(on, device.Grid{Threads: [3]uint32{32}}, nil); err != nil {
		return err
	}
	return e.Record(on)
}

// kernel is native/kernels/shmem/barrier.cpp, with the State of this World.
func (s *Side) kernel() (*device.Function, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.barrier != nil {
		return s.barrier, nil
	}
	m, err := s.env.GPU.Device.LoadKernels("shmem_barrier")
	if err != nil {
		return nil, err
	}
	var f *device.Function
	of, err := moduleState(m, s.env.GPU.Device)
	if err == nil {
		err = of.write(s.state)
	}
	if err == nil {
		f, err = m.Function("mori_shmem_barrier")
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	s.own, s.barrier = m, f
	return f, nil
}
