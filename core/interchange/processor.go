// SPDX-License-Identifier: MIT

package interchange

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/proxy"
)

// A processor is where a side's kernels run, and their memory is.
type processor interface {
	name() string

	// data is memory of the GPU, words is zeroed host memory that the GPU maps at the same address.
	// Both are page-aligned.
	data(n uint64) (block, error)
	words(n uint64) (block, error)

	// fill copies to the start of data, fetch from there.
	fill(b block, with []byte) error
	fetch(b block, into []byte) error

	// memory is the location of a proxy's queue.
	memory() proxy.Memory

	// prepare loads kernels before any of them runs.
	prepare(module string, functions ...string) error

	// reach lets kernels load and store data of another processor.
	reach(other processor) error

	// run runs a kernel to completion.
	run(ctx context.Context, k kernel) error

	close() error
}

// A block is memory that is freed once.
type block struct {
	addr, n uint64
	buffer  fabric.Buffer // its kind for providers
	free    func() error
}

func (b *block) close() error {
	if b.free == nil {
		return nil
	}
	free := b.free
	b.free = nil
	return free()
}

// A kernel is code to run: a function on a GPU, or onCPU.
type kernel struct {
	function string
	args     *device.Args
	blocks   uint32 // 0: one
	threads  uint32 // on a GPU
	onCPU    func() error
}

// cpuThreads is the number of threads of a block on the CPU: one warp, each of which is a polling
// OS thread.
const cpuThreads = 4

// findProcessor reads "cpu", "cuda:0", "hip:1".
func findProcessor(text string) (processor, error) {
	vendor, number, numbered := strings.Cut(text, ":")
	ordinal := 0
	if numbered {
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("GPU %q: want cpu, cuda:N or hip:N: %w", text, fabric.ErrInvalid)
		}
		ordinal = n
	}
	switch vendor {
	case "cpu":
		if !numbered {
			return cpu{}, nil
		}
	case "cuda", "hip":
		return findGPU(strings.ToUpper(vendor), ordinal)
	}
	return nil, fmt.Errorf("GPU %q: want cpu, cuda:N or hip:N: %w", text, fabric.ErrInvalid)
}

// cpu runs kernels on threads of this process.
type cpu struct{}

func (cpu) name() string { return "CPU threads" }

func (cpu) words(n uint64) (block, error) {
	b, err := sys.Alloc(int(n))
	if err != nil {
		return block{}, err
	}
	at := sys.AddrOf(b)
	return block{at, n, fabric.Buffer{Addr: at, Len: n}, func() error { return sys.Free(b) }}, nil
}

func (c cpu) data(n uint64) (block, error) { return c.words(n) }

func (cpu) fill(b block, with []byte) error {
	copy(sys.Bytes(b.addr, int(b.n)), with)
	return nil
}

func (cpu) fetch(b block, into []byte) error {
	copy(into, sys.Bytes(b.addr, int(b.n)))
	return nil
}

func (cpu) memory() proxy.Memory { return proxy.OnHost() }

func (cpu) prepare(string, ...string) error { return nil }

func (cpu) reach(other processor) error {
	if _, ok := other.(cpu); !ok {
		return fmt.Errorf("CPU threads cannot access %s: %w", other.name(), fabric.ErrNotSupported)
	}
	return nil
}

func (cpu) run(_ context.Context, k kernel) error { return k.onCPU() }

func (cpu) close() error { return nil }
