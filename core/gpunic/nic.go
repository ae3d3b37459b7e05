// SPDX-License-Identifier: MIT

package gpunic

import (
	"errors"
	"fmt"

	"mori/core/gpunic/emu"
	"mori/core/gpunic/mlx5"
	"mori/core/gpunic/mlx5/dv"
	"mori/native/abi"
	native "mori/native/nic"
)

// An Environment is the GPU or CPU environment of the kernels that drive a NIC.
type Environment interface {
	// Words returns n zeroed bytes of page-aligned host memory that kernels access at the same
	// address. It stays valid until free is called.
	Words(n uint64) (addr uint64, free func() error, err error)

	// Window returns access to n bytes of GPU memory at addr for the thread of an emulated NIC, or nil
	// if the CPU can access them directly. The NIC closes it.
	Window(addr, n uint64) (Window, error)
}

// A Window reads and writes GPU memory from the host.
type Window interface {
	emu.Memory
	Close() error
}

// A NIC is an open NIC with one protection domain.
type NIC struct {
	name     string
	family   *family
	env      Environment
	device   *mlx5.Device
	emulated *emu.NIC // nil for hardware
	undo     []func() error
	windows  []Window // closed after the device, whose thread uses them if it is emulated
}

// Open opens a NIC by name: a device of libibverbs, or "emu0", "emu0:bnxt" and so on for an
// emulated one. Emulated NICs of different processes on the host communicate through sockets.
func Open(name string, env Environment) (*NIC, error) {
	device, f, emulated, err := parseName(name)
	if err != nil {
		return nil, err
	}
	n := &NIC{name: name, family: f, env: env}
	cmd, err := n.command(device, emulated)
	if err != nil {
		return nil, fmt.Errorf("open device %s: %w", name, err)
	}
	if n.device, err = mlx5.Open(cmd); err != nil {
		return nil, err
	}
	n.later(n.device.Close)
	return n, nil
}

func (n *NIC) command(device string, emulated bool) (mlx5.Cmd, error) {
	if !emulated {
		return dv.Open(device)
	}
	nic, err := emu.New(emu.Options{Name: device, Wire: "unix", Family: n.family.emulated, UAR: n.doorbells})
	if err != nil {
		return nil, err
	}
	n.emulated = nic
	return nic, nil
}

// doorbells returns memory for kernels to ring an emulated NIC.
func (n *NIC) doorbells(bytes int) (addr uint64, free func() error, err error) {
	return n.env.Words(uint64(bytes))
}

func (n *NIC) later(f func() error) { n.undo = append(n.undo, f) }

// Name returns the name that the NIC was opened by.
func (n *NIC) Name() string { return n.name }

// Provider returns device code's number of this NIC's family.
func (n *NIC) Provider() abi.NICProvider { return n.family.provider }

// Info describes the NIC and its ports at the time when it was opened.
func (n *NIC) Info() mlx5.Info { return n.device.Info() }

// Caps returns the NIC's limits.
func (n *NIC) Caps() mlx5.Caps { return n.device.Caps() }

// StatusErr returns the error that a queue's status stands for, with the NIC's name, or nil.
func (n *NIC) StatusErr(status uint64) error {
	if err := native.StatusErr(status); err != nil {
		return fmt.Errorf("NIC %s: %w", n.name, err)
	}
	return nil
}

// Register registers n bytes at addr with the NIC until Close. The caller keeps the memory mapped
// until then.
func (n *NIC) Register(addr, bytes uint64, access mlx5.Access) (abi.NICMemory, error) {
	if n.emulated != nil {
		w, err := n.env.Window(addr, bytes)
		if err != nil {
			return abi.NICMemory{}, err
		}
		if w != nil {
			n.windows = append(n.windows, w)
			n.emulated.AddMemory(addr, bytes, w)
		}
	}
	r, err := n.device.Register(addr, bytes, access)
	if err != nil {
		return abi.NICMemory{}, err
	}
	n.later(r.Close)
	return r.View(), nil
}

// Close closes queues, regions and the NIC. If an emulated NIC detected a use that hardware would
// not accept, Close returns it as an error.
func (n *NIC) Close() error {
	if n == nil {
		return nil
	}
	var errs []error
	for i := len(n.undo) - 1; i >= 0; i-- {
		errs = append(errs, n.undo[i]())
	}
	n.undo = nil
	for _, w := range n.windows {
		errs = append(errs, w.Close())
	}
	n.windows = nil
	if n.emulated != nil {
		for _, v := range n.emulated.Violations() {
			errs = append(errs, fmt.Errorf("%s was used in a way that a real NIC would reject: %s", n.name, v))
		}
		n.emulated = nil
	}
	return errors.Join(errs...)
}
