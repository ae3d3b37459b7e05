// SPDX-License-Identifier: MIT

package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"mori/core/device"
	"mori/core/memory"
	"mori/native/abi"
	"mori/shmem/internal/access"
	"mori/shmem/internal/peers"
)

// A Module is code on a GPU, such as a user's or Triton's, that knows a World.
type Module struct {
	dev     *device.Device
	addr    uint64         // address of its State
	base    uint64         // address of the allocation that contains it
	written abi.ShmemState // last value written
}

// Same reports whether both describe the same module.
func (m *Module) Same(other *Module) bool { return m.dev == other.dev && m.addr == other.addr }

// moduleState finds the State in a module.
func moduleState(m *device.Module, d *device.Device) (*Module, error) {
	v, err := m.Variable(stateSymbol)
	if err != nil {
		return nil, err
	}
	if v.Bytes != abi.ShmemStateBytes {
		return nil, fmt.Errorf("its %s has %d bytes, and this build's has %d: compile it with the headers of this version: %w", stateSymbol, v.Bytes, abi.ShmemStateBytes, peers.ErrInvalid)
	}
	p, err := device.Lookup(v.Addr)
	if err != nil {
		return nil, err
	}
	return &Module{dev: d, addr: v.Addr, base: p.Base}, nil
}

// write fills in the State. It skips a module that was unloaded, as far as that can be detected:
// its address then has no memory, or other memory.
func (m *Module) write(state abi.ShmemState) error {
	g := access.NewGPU(m.dev, time.Minute, nil)
	err := m.replace(g, state)
	return errors.Join(err, g.Close())
}

func (m *Module) replace(g *access.GPU, state abi.ShmemState) error {
	p, err := device.Lookup(m.addr)
	if err != nil || p.Base != m.base || p.Device != m.dev {
		return err
	}
	now := new(abi.ShmemState)
	defer runtime.KeepAlive(now)
	at := memory.AddrOf(abi.Bytes(now))
	if m.written != (abi.ShmemState{}) {
		if err := g.Copy(at, m.addr, abi.ShmemStateBytes); err != nil {
			return err
		}
		if *now != m.written {
			return nil
		}
	}
	*now, m.written = state, state
	return g.Copy(m.addr, at, abi.ShmemStateBytes)
}
