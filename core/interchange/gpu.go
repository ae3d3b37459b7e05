// SPDX-License-Identifier: MIT

package interchange

import (
	"context"
	"errors"
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/proxy"
)

// gpu runs kernels on a GPU.
type gpu struct {
	d         *device.Device
	stream    *device.Stream
	modules   []*device.Module
	functions map[string]*device.Function
}

var _ processor = (*gpu)(nil)

func findGPU(api string, ordinal int) (processor, error) {
	all, err := device.Devices()
	if err != nil {
		return nil, err
	}
	n := 0
	for _, d := range all {
		if d.API != api {
			continue
		}
		if d.Ordinal == ordinal {
			return &gpu{d: d, functions: map[string]*device.Function{}}, nil
		}
		n++
	}
	return nil, fmt.Errorf("no %s device %d: this process sees %d: %w", api, ordinal, n, fabric.ErrInvalid)
}

func (g *gpu) name() string { return g.d.String() }

func (g *gpu) data(n uint64) (block, error) {
	m, err := g.d.Alloc(n)
	if err != nil {
		return block{}, err
	}
	kind := fabric.MemCUDA
	if g.d.Vendor == device.HIP {
		kind = fabric.MemHIP
	}
	return block{m.Addr(), n, fabric.Buffer{Addr: m.Addr(), Len: n, Kind: kind, Device: g.d.Ordinal}, m.Close}, nil
}

func (g *gpu) words(n uint64) (block, error) {
	m, err := g.d.AllocHost(n)
	if err != nil {
		return block{}, err
	}
	if m.DeviceAddr() != m.Addr() {
		return block{}, errors.Join(fmt.Errorf("%s maps host memory at other addresses than the host: %w", g.d, errors.ErrUnsupported), m.Close())
	}
	clear(sys.Bytes(m.Addr(), int(n)))
	return block{m.Addr(), n, fabric.Buffer{Addr: m.Addr(), Len: n}, m.Close}, nil
}

func (g *gpu) memory() proxy.Memory { return proxy.OnGPU(g.d) }

// fill and fetch copy through pinned memory.
func (g *gpu) fill(b block, with []byte) (err error) {
	from, err := g.words(uint64(len(with)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	copy(sys.Bytes(from.addr, len(with)), with)
	return g.onStream(context.Background(), func(s *device.Stream) error { return s.Copy(b.addr, from.addr, uint64(len(with))) })
}

func (g *gpu) fetch(b block, into []byte) (err error) {
	to, err := g.words(uint64(len(into)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	err = g.onStream(context.Background(), func(s *device.Stream) error { return s.Copy(to.addr, b.addr, uint64(len(into))) })
	copy(into, sys.Bytes(to.addr, len(into)))
	return err
}

// onStream queues work on the side's stream, and waits for it.
func (g *gpu) onStream(ctx context.Context, give func(*device.Stream) error) (err error) {
	if g.stream == nil {
		if g.stream, err = g.d.NewStream(device.Normal); err != nil {
			return err
		}
	}
	if err := give(g.stream); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return g.stream.Wait(ctx)
}

// patience is the time limit of a kernel whose waits are all bounded.
const patience = 10 * defaultLimit

// prepare looks up the kernels of a module before one of them spins. Drivers load late lookups only
// when running kernels have ended.
func (g *gpu) prepare(module string, functions ...string) error {
	m, err := g.d.LoadKernels(module)
	if err != nil {
		return err
	}
	g.modules = append(g.modules, m)
	for _, name := range functions {
		if g.functions[name], err = m.Function(name); err != nil {
			return err
		}
	}
	return g.onStream(context.Background(), func(*device.Stream) error { return nil })
}

func (g *gpu) reach(other processor) error {
	o, ok := other.(*gpu)
	if !ok {
		return fmt.Errorf("%s cannot access memory of %s: %w", g.d, other.name(), fabric.ErrNotSupported)
	}
	if o.d == g.d {
		return nil
	}
	return g.d.EnablePeer(o.d)
}

func (g *gpu) run(ctx context.Context, k kernel) error {
	f := g.functions[k.function]
	if f == nil {
		return fmt.Errorf("kernel %s was not prepared: %w", k.function, ErrOrder)
	}
	return g.onStream(ctx, func(s *device.Stream) error {
		return f.Launch(s, device.Grid{Blocks: [3]uint32{max(k.blocks, 1)}, Threads: [3]uint32{k.threads}}, k.args)
	})
}

func (g *gpu) close() error {
	var errs []error
	if g.stream != nil {
		errs = append(errs, g.stream.Close())
	}
	for _, m := range g.modules {
		errs = append(errs, m.Close())
	}
	g.stream, g.modules = nil, nil
	return errors.Join(errs...)
}
