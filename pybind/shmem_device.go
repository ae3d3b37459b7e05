// SPDX-License-Identifier: MIT

package pybind

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"mori/core/device"
	"mori/shmem"
)

// moduleList holds the modules that were connected to a World, to reconnect them to the next World.
// Triton keeps compiled kernels for the lifetime of the process.
type moduleList struct {
	mu  sync.Mutex
	all []*shmem.Module
}

var modules moduleList

func (l *moduleList) add(m *shmem.Module) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, known := range l.all {
		if known.Same(m) {
			l.all[i] = m
			return
		}
	}
	l.all = append(l.all, m)
}

// refill connects the modules of an earlier World to this one. It skips modules that were unloaded.
func (l *moduleList) refill(w *shmem.World) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.all {
		_ = w.Refill(m) // a module that cannot be refilled cannot run
	}
}

// ShmemModuleInit connects a GPU module (CUmodule or hipModule_t) to symmetric memory. It returns
// false if no kernel of the module uses symmetric memory.
func ShmemModuleInit(module uint64) (known bool, err error) {
	defer guard(&err)
	p, err := enter()
	if err != nil {
		return false, err
	}
	defer p.leave()
	m, err := p.ModuleInit(module)
	if errors.Is(err, device.ErrNoSymbol) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	modules.add(m)
	return true, nil
}

// ShmemLoadModule loads a PTX file or a code object on the GPU of this thread's PE, and connects it
// to symmetric memory. It returns the vendor's handle. The module stays loaded until the process
// ends.
func ShmemLoadModule(path string) (handle uint64, err error) {
	defer guard(&err)
	p, err := enter()
	if err != nil {
		return 0, err
	}
	defer p.leave()
	if p.device == nil {
		return 0, coded("E_UNSUPPORTED", errors.New("the symmetric heap is in host memory, which needs no device module"))
	}
	image, err := os.ReadFile(path)
	if err != nil {
		return 0, coded("E_ARG", err)
	}
	m, err := p.device.Load(image)
	if err != nil {
		return 0, err
	}
	known, err := p.ModuleInit(m.Handle())
	if err != nil {
		return 0, errors.Join(err, m.Close())
	}
	modules.add(known)
	return m.Handle(), nil
}

// ShmemBarrierOnStream queues a barrier of all PEs on a GPU stream (cudaStream_t or hipStream_t).
// It returns false and does nothing if the heap is in host memory.
func ShmemBarrierOnStream(stream uint64) (onGPU bool, err error) {
	defer guard(&err)
	p, err := enter()
	if err != nil {
		return false, err
	}
	defer p.leave()
	if p.device == nil {
		return false, nil
	}
	return true, p.BarrierOnStream(stream)
}

// ShmemDevice returns the mori.device number of the GPU that holds the heap of this thread's PE;
// -1: host memory.
func ShmemDevice() (number int, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return 0, err
	}
	if p.device == nil {
		return -1, nil
	}
	if number = numberOf(p.device); number < 0 {
		return 0, fmt.Errorf("%s is not one of the devices", p.device)
	}
	return number, nil
}
