// SPDX-License-Identifier: MIT

package interchange

import (
	"context"
	"fmt"
	"time"

	"mori/core/device"
	"mori/core/fabric"
	"mori/native/abi"
)

// A View describes a connected side to the caller's own kernels.
type View struct {
	Queue uint64 // address of the mori::nic::Queue, or of the mori::proxy::Queue
	Proxy bool
	Mine  abi.NICMemory // this side's buffer
	Peer  abi.NICMemory // the other side's buffer; with a proxy only its length: offsets in region 0 address it
	Words uint64        // wordBytes of host memory, at this address for kernels
	Limit time.Duration
}

// wordBytes is the size of a side's words. They are zero at first. With a proxy they are the peer's
// region 1.
const wordBytes = 4096

// prepare loads the caller's kernels, or mori's.
func (o *Options) prepare(p processor, module string, functions ...string) error {
	if o.Module != "" {
		module, functions = o.Module, o.Functions
	}
	return p.prepare(module, functions...)
}

// View describes a side for kernels of the caller.
func (s *Side) View() (View, error) {
	if s.ended || s.step < peerSet {
		return View{}, fmt.Errorf("view after step %d: %w", s.step, ErrOrder)
	}
	return s.link.view(), nil
}

// OnCPU reports whether the side's kernels run on threads of this process.
func (s *Side) OnCPU() bool {
	_, yes := s.processor.(cpu)
	return yes
}

// Launch runs one of Options.Functions on the side's GPU, as one block of threads, and waits until
// it has ended. args are its one argument, aligned to 8.
func (s *Side) Launch(ctx context.Context, function string, args []byte, threads uint32) error {
	if s.ended || s.step < peerSet {
		return fmt.Errorf("launch after step %d: %w", s.step, ErrOrder)
	}
	if threads == 0 || len(args) == 0 {
		return fmt.Errorf("launch %s on %d threads with %d bytes of arguments: %w", function, threads, len(args), fabric.ErrInvalid)
	}
	return s.processor.run(ctx, kernel{function: function, args: new(device.Args).Struct(args, 8), threads: threads, onCPU: func() error {
		return fmt.Errorf("launch %s on the CPU, whose kernels the caller runs: %w", function, fabric.ErrNotSupported)
	}})
}

// part returns a range of the side's buffer.
func (s *Side) part(offset, n uint64) (block, error) {
	if s.ended || s.data.n == 0 {
		return block{}, fmt.Errorf("use the buffer after step %d: %w", s.step, ErrOrder)
	}
	if n == 0 || offset > s.data.n || n > s.data.n-offset {
		return block{}, fmt.Errorf("%d bytes at %d of a buffer of %d: %w", n, offset, s.data.n, fabric.ErrRange)
	}
	return block{addr: s.data.addr + offset, n: n}, nil
}

// Fill copies bytes into the side's buffer. No kernel may run.
func (s *Side) Fill(offset uint64, with []byte) error {
	b, err := s.part(offset, uint64(len(with)))
	if err != nil {
		return err
	}
	return s.processor.fill(b, with)
}

// Fetch copies bytes from the side's buffer. No kernel may run.
func (s *Side) Fetch(offset uint64, into []byte) error {
	b, err := s.part(offset, uint64(len(into)))
	if err != nil {
		return err
	}
	return s.processor.fetch(b, into)
}
