// SPDX-License-Identifier: MIT

package gpu

import (
	"errors"
	"fmt"

	"mori/shmem/internal/peers"
)

// Kernels are the calls for kernels of this PE's GPU. With a heap in host memory they have no
// effect or return an error that wraps errors.ErrUnsupported.
type Kernels struct {
	pes  *peers.Group
	side *Side // nil if the heap is in host memory
}

// NewKernels returns the calls on s, nil if the heap is in host memory.
func NewKernels(pes *peers.Group, s *Side) *Kernels { return &Kernels{pes, s} }

// State returns what kernels know of the World as an address in the GPU's memory, of a
// mori::shmem::State (native/include/mori/shmem). It is for kernels whose module has several
// Worlds, and which get theirs as an argument. It is 0 where the heap is in host memory, and lives
// until Finalize.
func (k *Kernels) State() uint64 {
	if k.side == nil || k.pes.Closed() {
		return 0
	}
	return k.side.peers.Addr() + uint64(k.pes.N*peerBytes)
}

// Remote is a queue for kernels of this PE's GPU that come to other PEs through this host, a
// mori::proxy::Queue of native/include/mori/proxy as its address in the GPU's memory. There is
// none, and ok is false, if kernels reach all PEs by loads and stores (Ptr is not 0), if the heap
// is in host memory, or if a port could not be opened, which the log says.
//
// PEs of the queue are those of the World. It reaches the PEs whose Ptr is 0; operations on others
// end with an error. Region 0 of each PE is its heap, so that the remote offset of a symmetric
// address is how far it is behind the heap's begin, which is Queue.local on the device and Base
// here; local addresses are those of the heap and of registered buffers. The queue lives until
// Finalize, and no kernel may use it longer.
func (k *Kernels) Remote() (queue uint64, ok bool) {
	if k.side == nil || k.pes.Closed() {
		return 0, false
	}
	queue = k.side.remote.device()
	return queue, queue != 0
}

// RemoteErr is why the queue of Remote does not reach PE pe, nil if it does: once an operation to a
// PE has failed, it takes no more.
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

// RemoteStatus returns why a kernel could do nothing at PE pe, by the status of the
// mori::shmem::Outcome that the kernel got. The kernel reaches the PE by the queue of Remote or by
// that of Config.NIC.
func (k *Kernels) RemoteStatus(pe int, status uint64) error {
	if err := k.RemoteErr(pe); err != nil {
		return err
	}
	return k.side.remote.meaning(pe, status)
}

// ModuleInit fills in what the kernels of a module need to know of the World. The module, a
// CUmodule or hipModule_t, is loaded on this PE's GPU. It may be repeated. The error wraps
// device.ErrNoSymbol if the module has no kernels that use symmetric memory. When the World ends,
// the module is cleared.
func (k *Kernels) ModuleInit(id uint64) (*Module, error) {
	if err := k.pes.Check(); err != nil {
		return nil, fmt.Errorf("initialise a module: %w", err)
	}
	if k.side == nil {
		return nil, fmt.Errorf("initialise a module: the symmetric heap is in host memory: %w", errors.ErrUnsupported)
	}
	m, err := moduleState(k.side.env.GPU.Device.BorrowModule(id), k.side.env.GPU.Device)
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
