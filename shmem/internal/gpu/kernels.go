// SPDX-License-Identifier: MIT

package gpu

import (
	"errors"
	"fmt"

	"mori/native/abi"
	"mori/shmem/internal/peers"
)

// Kernels has the calls for kernels of this PE's GPU. With a heap in host memory they do nothing or
// return an error that wraps errors.ErrUnsupported.
type Kernels struct {
	pes  *peers.Group
	side *Side // nil if the heap is in host memory
}

// NewKernels returns the calls on s, nil if the heap is in host memory.
func NewKernels(pes *peers.Group, s *Side) *Kernels { return &Kernels{pes, s} }

// State returns the address in GPU memory of this World's mori::shmem::State
// (native/include/mori/shmem). Kernels whose module serves several Worlds take it as an argument.
// It is 0 if the heap is in host memory, and valid until Finalize.
func (k *Kernels) State() uint64 {
	if k.side == nil || k.pes.Closed() {
		return 0
	}
	return k.side.peers.Addr() + uint64(k.pes.N*abi.ShmemPeerBytes)
}

// Remote returns a queue through which kernels of this PE's GPU reach other PEs via this host. It
// is a mori::proxy::Queue (native/include/mori/proxy) at an address in GPU memory. ok is false if
// kernels reach all PEs by loads and stores (Ptr is not 0), if the heap is in host memory, or if no
// port could be opened; the log has the reason.
//
// The queue uses the PE numbers of the World and reaches the PEs whose Ptr is 0. Operations on
// other PEs end with an error. Region 0 of each PE is its heap, so a remote offset is the distance
// from the start of the heap (Queue.local on the device, Base here). Local addresses are those of
// the heap and of registered buffers. No kernel may use the queue after Finalize.
func (k *Kernels) Remote() (queue uint64, ok bool) {
	if k.side == nil || k.pes.Closed() {
		return 0, false
	}
	queue = k.side.remote.device()
	return queue, queue != 0
}

// RemoteErr returns why the queue of Remote does not reach PE pe, nil if it does. After a failed
// operation a PE accepts no more operations.
func (k *Kernels) RemoteErr(pe int) error {
	switch {
	case k.side == nil || k.side.remote == nil:
		return fmt.Errorf("kernels have no queue: %w", errors.ErrUnsupported)
	case k.side.remote.queue == nil:
		return k.side.remote.why
	case !k.side.isFar(pe):
		return fmt.Errorf("the queue for kernels does not reach PE %d: %w", pe, peers.ErrInvalid)
	}
	return k.side.remote.queue.Err(pe)
}

// RemoteStatus translates the status of a mori::shmem::Outcome into an error: why a kernel failed
// on PE pe, which it reached by the queue of Remote or of Config.NIC.
func (k *Kernels) RemoteStatus(pe int, status uint64) error {
	if err := k.RemoteErr(pe); err != nil {
		return err
	}
	return k.side.remote.meaning(pe, status)
}

// ModuleInit fills in the State of a module, a CUmodule or hipModule_t that is loaded on this PE's
// GPU. It may be repeated. The error wraps device.ErrNoSymbol if no kernel of the module uses
// symmetric memory. Finalize clears the module's State.
func (k *Kernels) ModuleInit(id uint64) (*Module, error) {
	if err := k.pes.Check(); err != nil {
		return nil, fmt.Errorf("initialise a module: %w", err)
	}
	if k.side == nil {
		return nil, fmt.Errorf("initialise a module: the symmetric heap is in host memory: %w", errors.ErrUnsupported)
	}
	m, err := moduleState(k.side.env.GPU.Device.ExternalModule(id), k.side.env.GPU.Device)
	if err == nil {
		err = k.Refill(m)
	}
	if err != nil {
		return nil, fmt.Errorf("initialise module %#x: %w", id, err)
	}
	return m, nil
}

// Refill is ModuleInit for a module of an earlier World of the same GPU.
func (k *Kernels) Refill(m *Module) error {
	if k.side == nil || m.dev != k.side.env.GPU.Device {
		return nil
	}
	s := k.side
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := m.write(s.state); err != nil {
		return err
	}
	for _, known := range s.modules {
		if known == m {
			return nil
		}
	}
	s.modules = append(s.modules, m)
	return nil
}
