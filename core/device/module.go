// SPDX-License-Identifier: MIT

package device

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"mori/native/gpu"
)

// A Module is code loaded on a device.
type Module struct {
	handle
	gpu gpu.Module
}

// Load loads PTX or a cubin (CUDA), or a code object (HIP). The error wraps ErrImage if the code is
// for other devices or for a newer driver.
func (d *Device) Load(image []byte) (*Module, error) {
	loaded, err := d.gpu.LoadModule(image)
	if err != nil {
		return nil, fmt.Errorf("load %d bytes of code on %s (%s, driver %d): %w", len(image), d, d.Arch, d.Driver, err)
	}
	m := &Module{gpu: loaded}
	m.init(d, "a module", loaded.Unload)
	return m, nil
}

// ExternalModule is a module that mori has not loaded, such as Triton's: CUmodule, hipModule_t. It
// must outlive its use.
func (d *Device) ExternalModule(id uint64) *Module {
	return &Module{handle: handle{dev: d, what: "an external module", free: func() error { return nil }}, gpu: gpu.Module{Device: d.gpu, Handle: id}}
}

// Handle returns the vendor's handle.
func (m *Module) Handle() uint64 { return m.gpu.Handle }

// A Variable is a variable of a module.
type Variable struct{ Addr, Bytes uint64 }

// Variable finds a variable. The error wraps ErrNoSymbol if the module has none of that name.
func (m *Module) Variable(name string) (Variable, error) {
	if err := m.check(); err != nil {
		return Variable{}, err
	}
	addr, n, err := m.gpu.Global(name)
	if err != nil {
		return Variable{}, fmt.Errorf("find variable %q: %w", name, err)
	}
	return Variable{addr, n}, nil
}

// A Function is a kernel of a module, which it does not outlive.
type Function struct {
	module *Module
	gpu    gpu.Function
	name   string
}

// Function finds a kernel. The error wraps ErrNoSymbol if the module has none of that name.
func (m *Module) Function(name string) (*Function, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	found, err := m.gpu.Function(name)
	if err != nil {
		return nil, fmt.Errorf("find kernel %q: %w", name, err)
	}
	return &Function{m, found, name}, nil
}

// SetShared allows launches to request n bytes of shared memory, up to Info.MaxShared, if that
// exceeds Info.Shared.
func (f *Function) SetShared(n int) error {
	if err := f.module.check(); err != nil {
		return err
	}
	if err := f.gpu.SetShared(n); err != nil {
		return fmt.Errorf("set kernel %q's shared memory to %d bytes: %w", f.name, n, err)
	}
	return nil
}

// MaxThreads returns the limit of threads in a block of f.
func (f *Function) MaxThreads() (int, error) { return f.attribute(gpu.MaxThreads) }

// Registers returns the number of registers per thread.
func (f *Function) Registers() (int, error) { return f.attribute(gpu.Registers) }

func (f *Function) attribute(a int) (int, error) {
	if err := f.module.check(); err != nil {
		return 0, err
	}
	return f.gpu.Attribute(a)
}

// A Grid is the shape of a launch. Lengths of 0 count as 1.
type Grid struct {
	Blocks, Threads [3]uint32
	Shared          uint32 // dynamic shared memory per block
}

// shapes pools launch shapes: memory that C gets a pointer to is on the heap.
var shapes = sync.Pool{New: func() any { return new(gpu.Grid) }}

// Launch queues f on s. The arguments are copied before it returns.
func (f *Function) Launch(s *Stream, g Grid, args *Args) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := f.module.check(); err != nil {
		return err
	}
	if s.dev != f.module.dev {
		return fmt.Errorf("launch kernel %q of %s on %s: %w", f.name, f.module.dev, s.dev, ErrInvalid)
	}
	shape := shapes.Get().(*gpu.Grid)
	defer shapes.Put(shape)
	*shape = gpu.Grid{Blocks: g.Blocks, Threads: g.Threads, Shared: g.Shared}
	for i := range 3 {
		shape.Blocks[i], shape.Threads[i] = max(1, shape.Blocks[i]), max(1, shape.Threads[i])
	}
	var packed []byte
	if args != nil {
		packed = args.b
	}
	if err := f.gpu.Launch(shape, s.gpu, packed); err != nil {
		return fmt.Errorf("launch kernel %q with %v blocks of %v threads and %d bytes of arguments: %w", f.name, shape.Blocks, shape.Threads, len(packed), err)
	}
	return nil
}

// Args are a kernel's arguments, in order and with C's alignment. The zero value is empty.
type Args struct{ b []byte }

// Reset empties a and keeps its memory.
func (a *Args) Reset() *Args { a.b = a.b[:0]; return a }

// Align aligns the next argument to a multiple of n.
func (a *Args) Align(n int) *Args {
	for len(a.b)%n != 0 {
		a.b = append(a.b, 0)
	}
	return a
}

// Uint64 appends an integer or an address.
func (a *Args) Uint64(v uint64) *Args {
	a.Align(8)
	a.b = binary.LittleEndian.AppendUint64(a.b, v)
	return a
}

// Uint32 appends an integer.
func (a *Args) Uint32(v uint32) *Args {
	a.Align(4)
	a.b = binary.LittleEndian.AppendUint32(a.b, v)
	return a
}

// Int32 appends an integer.
func (a *Args) Int32(v int32) *Args { return a.Uint32(uint32(v)) }

// Float32 appends a number.
func (a *Args) Float32(v float32) *Args { return a.Uint32(math.Float32bits(v)) }

// Struct appends a struct that is laid out already, with the given alignment.
func (a *Args) Struct(b []byte, align int) *Args {
	a.Align(align)
	a.b = append(a.b, b...)
	return a
}
