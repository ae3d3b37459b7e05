// SPDX-License-Identifier: MIT

package interchange

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/gpunic"
	"mori/core/internal/sys"
	"mori/native/abi"
	"mori/native/nic"
	kernels "mori/native/proxy"
)

// Puts are many small puts by the threads of one GPU to another's memory, put k to the k-th slot
// of so many bytes.
type Puts struct {
	// Path is "stores", by the threads themselves if they reach the other memory, or a device of
	// Options, such as "proxy:shm" and "emu0".
	Path string
	GPUs [2]string // of the sender, and of the target memory

	Bytes   uint64 // of each put; for stores a multiple of 8
	Count   uint64
	Blocks  uint32 // 0: one
	Threads uint32 // of a block; on the CPU whole warps of 4, or single threads with a proxy and stores
	Each    bool   // a thread waits after each put; otherwise after all of its puts

	// Host makes the host itself post over the provider of a proxy, with Threads times Blocks puts
	// pending, or one with Each: the limit of a proxy.
	Host bool
}

const (
	storesPath = "stores"
	putModule  = "proxy_put"
	putKernel  = "mori_proxy_put"
	storeName  = "mori_proxy_store"
)

// mostBlocks leaves multiprocessors of any GPU free for copies, which an emulated NIC or a provider
// makes while kernels spin.
const mostBlocks = 64

// Measure opens two sides, lets one put, and compares every received byte. A difference is
// ErrWrong. It returns the time of the slowest thread by the GPU's clock, or of the host.
func Measure(ctx context.Context, p Puts) (_ time.Duration, err error) {
	p.Blocks = max(p.Blocks, 1)
	all := p.Bytes * p.Count
	if p.Bytes == 0 || p.Count == 0 || p.Bytes > 1<<30 || p.Count > 1<<30 || all > 1<<34 || p.Threads == 0 || p.Threads > 1024 || p.Blocks > mostBlocks || p.Path == storesPath && p.Bytes%8 != 0 {
		return 0, fmt.Errorf("%d puts of %d bytes by %d blocks of %d threads: %w", p.Count, p.Bytes, p.Blocks, p.Threads, fabric.ErrInvalid)
	}
	if p.Path == storesPath {
		return p.stores(ctx, all)
	}
	var sides [2]*Side
	for i, gpu := range p.GPUs {
		if sides[i], err = Open(p.options(gpu)); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, sides[i].Close()) }()
	}
	if err := join(sides[0], sides[1], all); err != nil {
		return 0, err
	}
	sent := pattern(all)
	if err := errors.Join(sides[0].Fill(0, sent), sides[1].Fill(0, make([]byte, all))); err != nil {
		return 0, err
	}
	took, err := p.put(ctx, sides[0])
	if err != nil {
		return 0, fmt.Errorf("%d puts of %d bytes over %s: %w", p.Count, p.Bytes, p.Path, err)
	}
	got := make([]byte, all)
	if err := sides[1].Fetch(0, got); err != nil {
		return 0, err
	}
	return took, same(p.Path, got, sent)
}

// ringLog is the ring's size: one pending put per thread, more wait.
const ringLog = 10

func (p *Puts) options(gpu string) Options {
	o := Options{Device: p.Path, GPU: gpu, Log: ringLog, Module: putModule, Functions: []string{putKernel}, bare: p.Host}
	if !strings.HasPrefix(p.Path, "proxy") {
		o.Module, _ = gpunic.KernelModule(p.Path) // Open refuses a path without a proxy
		o.Functions = []string{nic.Post{}.Kernel()}
	}
	return o
}

// join performs the steps of two sides of this process.
func join(a, b *Side, n uint64) error {
	var ends [2]End
	var shown [2]Memory
	sides := [2]*Side{a, b}
	for i, s := range sides {
		if _, err := s.Discover(); err != nil {
			return err
		}
		if _, err := s.OpenDevice(); err != nil {
			return err
		}
		var err error
		if ends[i], err = s.Endpoint(); err != nil {
			return err
		}
	}
	for i, s := range sides {
		if err := s.Connect(ends[1-i].Address); err != nil {
			return err
		}
	}
	for i, s := range sides {
		var err error
		if shown[i], err = s.Register(n); err != nil {
			return err
		}
	}
	return errors.Join(a.SetPeer(shown[1].Shown), b.SetPeer(shown[0].Shown))
}

func (p *Puts) put(ctx context.Context, s *Side) (time.Duration, error) {
	if l, ok := s.link.(*nicLink); ok {
		if p.Host {
			return 0, fmt.Errorf("the host can post only to the provider of a proxy: %w", fabric.ErrInvalid)
		}
		return p.byNIC(ctx, l)
	}
	l := s.link.(*proxyLink)
	if p.Host {
		window := int(p.Blocks * p.Threads)
		if p.Each {
			window = 1
		}
		return l.port.Puts(ctx, l.peer, l.local[0], p.Bytes, int(p.Count), window)
	}
	args := new(device.Args).Uint64(l.queue.Device()).Uint32(0).Uint32(one(p.Each))
	args.Uint64(l.local[0].Addr).Uint64(p.Bytes).Uint64(p.Count).Uint64(l.words.addr + outcomeAt)
	found, err := p.run(ctx, s.processor, putKernel, args, l.words.addr+outcomeAt, func(g kernels.Grid) abi.ProxyPutOutcome {
		return kernels.Put(g, l.queue.Device(), 0, p.Each, l.local[0].Addr, p.Bytes, p.Count)
	})
	if err == nil && found.Failed != 0 {
		err = l.why(found.Status)
	}
	return time.Duration(found.Nanoseconds), err
}

// run runs a kernel of putModule, which reports to an address in host memory.
func (p *Puts) run(ctx context.Context, at processor, name string, args *device.Args, report uint64, onCPU func(kernels.Grid) abi.ProxyPutOutcome) (found abi.ProxyPutOutcome, err error) {
	reported := &sys.Slice[abi.ProxyPutOutcome](report, 1)[0]
	*reported = abi.ProxyPutOutcome{}
	err = at.run(ctx, kernel{function: name, args: args, blocks: p.Blocks, threads: p.Threads, onCPU: func() error {
		if p.Threads > 1 && p.Threads%nic.WarpThreads != 0 || p.Threads*p.Blocks > nic.MostThreads {
			return fmt.Errorf("%d blocks of %d threads on the CPU: %w", p.Blocks, p.Threads, fabric.ErrInvalid)
		}
		found = onCPU(kernels.Grid{Blocks: p.Blocks, Threads: p.Threads})
		return nil
	}})
	if _, ok := at.(*gpu); ok {
		found = *reported
	}
	return found, err
}

// byNIC posts a list of writes.
func (p *Puts) byNIC(ctx context.Context, l *nicLink) (_ time.Duration, err error) {
	list, err := l.processor.words(p.Count * abi.NICWorkBytes)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, list.close()) }()
	work, mine := sys.Slice[abi.NICWork](list.addr, int(p.Count)), l.mine
	for i := range work {
		at := uint64(i) * p.Bytes
		work[i] = abi.NICWork{Kind: abi.NICKindWrite, Local: mine.Addr + at, LKey: mine.LKey, Remote: l.peer.Addr + at, RKey: l.peer.RKey, Bytes: p.Bytes}
	}
	post := nic.Post{Queue: l.seen.addr, Outcome: l.words.addr, Limit: l.opts.Limit, Work: list.addr, Count: p.Count, Posters: abi.NICPostersThread, Window: one(p.Each)}
	found, err := l.launch(ctx, post, nic.Grid{Blocks: p.Blocks, Threads: p.Threads})
	return time.Duration(found.Nanoseconds), err
}

// stores makes the threads store to the other memory, which they reach.
func (p *Puts) stores(ctx context.Context, all uint64) (_ time.Duration, err error) {
	var processors [2]processor
	var data [2]block
	sent := pattern(all)
	for i, gpu := range p.GPUs {
		if processors[i], err = findProcessor(gpu); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, data[i].close(), processors[i].close()) }()
		if data[i], err = processors[i].data(all); err != nil {
			return 0, err
		}
		with := sent
		if i == 1 {
			with = make([]byte, all)
		}
		if err = processors[i].fill(data[i], with); err != nil {
			return 0, err
		}
	}
	report, err := processors[0].words(wordBytes)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, report.close()) }()
	if err = errors.Join(processors[0].reach(processors[1]), processors[0].prepare(putModule, storeName)); err != nil {
		return 0, err
	}
	args := new(device.Args).Uint64(data[1].addr).Uint32(one(p.Each)).Uint64(data[0].addr)
	args.Uint64(p.Bytes).Uint64(p.Count).Uint64(report.addr)
	found, err := p.run(ctx, processors[0], storeName, args, report.addr, func(g kernels.Grid) abi.ProxyPutOutcome {
		return kernels.Store(g, data[1].addr, p.Each, data[0].addr, p.Bytes, p.Count)
	})
	if err != nil {
		return 0, err
	}
	got := make([]byte, all)
	if err := processors[1].fetch(data[1], got); err != nil {
		return 0, err
	}
	return time.Duration(found.Nanoseconds), same(p.Path, got, sent)
}

func one(yes bool) uint32 {
	if yes {
		return 1
	}
	return 0
}

// pattern has a byte for each position that identifies the position.
func pattern(n uint64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*31 + i>>8*7 + i>>16*5 + 1)
	}
	return b
}

func same(path string, got, sent []byte) error {
	if bytes.Equal(got, sent) {
		return nil
	}
	for i := range sent {
		if got[i] != sent[i] {
			return fmt.Errorf("byte %d of %d over %s is %#x, want %#x: %w", i, len(sent), path, got[i], sent[i], ErrWrong)
		}
	}
	return fmt.Errorf("%d bytes over %s, want %d: %w", len(got), path, len(sent), ErrWrong)
}
