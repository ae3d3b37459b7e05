// SPDX-License-Identifier: MIT

package gpu

import (
	"errors"
	"fmt"
	"runtime"

	"mori/core/device"
	"mori/core/memory"
	"mori/ep/internal/call"
	"mori/ep/internal/launch"
	"mori/ep/internal/plan"
	"mori/native/abi"
	"mori/shmem"
)

// A Side is one rank's op on a GPU. Not for use by several goroutines at once.
type Side struct {
	calls // Dispatch, Combine, Pack, Unpack and their forms; SetStream; Base and Received

	world    *shmem.World
	excluded *excluded
	watcher  watcher
	aside    *device.Stream // the op's own, for work that is not a call
}

// Open makes the op. Collective. It fails on all ranks or on none.
func Open(w *shmem.World, cfg plan.Config, l plan.Layout, state *call.State, opts Options) (*Side, error) {
	b := &buffers{}
	var err error
	if b.base, err = w.MallocAlign(plan.Alignment, l.Size); err != nil {
		return nil, fmt.Errorf("allocate the buffers of an op: %w", err)
	}
	dev := w.Device()
	s := &Side{world: w, excluded: &excluded{}}
	s.calls = calls{buffers: b, streams: newStreams(dev), cfg: cfg, layout: l, opts: opts, state: state, dev: dev}
	h, cause := findHosts(w, &s.cfg, s.base)
	err = agreeOnHosts(w, h.perHostOf(&s.cfg), cause)
	if err == nil && h != nil {
		h.records.layOut(h, &s.cfg, &s.layout, opts.chunk())
		err = h.records.allocate(w)
	}
	if err == nil {
		s.hosts = h
		err = agree(w, s.prepare())
	}
	if err == nil {
		return s, nil
	}
	err = errors.Join(fmt.Errorf("make an op on %s: %w", dev, err), s.release())
	if h != nil {
		err = errors.Join(err, h.records.free(w))
	}
	return nil, errors.Join(err, w.Free(b.base))
}

// prepare loads the kernels, makes this rank's memory and starts the watcher.
func (s *Side) prepare() (err error) {
	if s.kernels, err = useKernels(s.dev); err != nil {
		return err
	}
	if s.hosts != nil {
		if err := s.kernels.loadHosts(s.hosts.sums()); err != nil {
			return err
		}
	}
	var rules []launch.Rule
	if t := s.opts.Tuning; t != nil {
		rules = t.For(s.dev.Name, s.cfg.WorldSize)
	}
	s.chooser = launch.NewChooser(s.cfg, rules, s.opts.mostBlocks(s.dev.Units, s.hosts))
	if err := s.buffers.allocate(s.dev, &s.cfg, s.hosts); err != nil {
		return err
	}
	reports := &faults{buffers: s.buffers, world: s.world, cfg: &s.cfg, layout: &s.layout, hosts: s.hosts}
	s.health = &health{world: s.world, state: s.state, faults: reports, excluded: s.excluded}
	if err := s.fill(); err != nil {
		return err
	}
	s.SetStream(0)
	s.watcher.start(s.health, &s.notice)
	return nil
}

// fill clears the flags, because the memory may have been another op's, and writes the arguments
// that all kernels share.
func (s *Side) fill() error {
	t, err := s.dev.NewStream(device.Normal)
	if err != nil {
		return err
	}
	s.aside = t
	op := s.kernelOp()
	err = errors.Join(
		t.Set(s.base, 0, s.layout.DispatchOut.Offset),
		t.Set(s.own.Addr(), 0, s.own.Bytes()),
		t.Copy(s.at.op, memory.AddrOf(abi.Bytes(&op)), abi.EPOpBytes))
	var hosts abi.EPHosts
	if h := s.hosts; h != nil {
		hosts = h.kernelHosts(s)
		err = errors.Join(err,
			t.Set(h.records.base, 0, h.records.outgoing),
			t.Copy(s.at.hosts, memory.AddrOf(abi.Bytes(&hosts)), abi.EPHostsBytes))
	}
	if err == nil {
		err = s.wait(t)
	}
	runtime.KeepAlive(&op)
	runtime.KeepAlive(&hosts)
	return err
}

// wait waits for a stream, somewhat longer than kernels wait for other ranks.
func (s *Side) wait(t *device.Stream) error { return waitAtMost(s.opts.patience(), t.Wait) }

// release frees what is of this rank alone.
func (s *Side) release() error {
	s.watcher.end()
	var err error
	if s.aside != nil {
		err = s.aside.Close()
	}
	err = errors.Join(err, s.buffers.free())
	if s.kernels != nil {
		err = errors.Join(err, s.kernels.drop())
	}
	return err
}

// Close waits for kernels that run, and aborts those of a broken op and those that do not end in
// time. If a kernel does not end even then, Close frees nothing and returns an error that names it.
// The World is broken then. Collective.
func (s *Side) Close() error {
	stuck := s.Settle()
	base := s.base
	s.state.Close()
	s.base = 0
	if stuck != nil {
		s.watcher.end()
		return stuck
	}
	err := s.release()
	if s.hosts != nil {
		err = errors.Join(err, s.hosts.records.free(s.world))
	}
	return errors.Join(err, s.world.Free(base))
}

// Settle waits for all work of the op on streams. If a kernel does not end, Settle breaks the World
// and returns an error that names the kernel.
func (s *Side) Settle() error {
	err := s.settle()
	if err != nil {
		s.world.Abandon(err)
	}
	return err
}

// settle waits for all calls, whichever stream they are on. It aborts those of a broken op.
func (s *Side) settle() error {
	if s.state.Closed() {
		return nil
	}
	s.streams.mark()
	if s.health.update(); s.state.Broken() != nil {
		s.notice.abort()
	}
	if err := s.streams.settle(&s.notice, s.opts.patience(), s.cfg.Rank); err != nil {
		return err
	}
	s.sent.kind = sentNothing
	return nil
}

// Leave makes the op independent of its streams, whose owners may destroy them. No call but Close
// may follow.
func (s *Side) Leave() {
	if !s.state.Closed() {
		s.forgetStreams()
	}
}

// Check returns why the op is broken, or a *plan.CapError that no call has returned yet. It does
// not wait, so it reports only what the GPU has done by now.
func (s *Side) Check() error { return s.health.check() }

// Rows asks the GPU how many rows there are. It waits for the stream of the last call.
func (s *Side) Rows() (int, error) {
	if err := s.current.Copy(s.notice.answerAddr(), s.Received(), plan.Int32Bytes); err != nil {
		return 0, fmt.Errorf("read the number of rows: %w", err)
	}
	if err := s.wait(s.current); err != nil {
		return 0, fmt.Errorf("read the number of rows: %w", err)
	}
	return int(s.notice.answer()), s.Check()
}

// Device returns the GPU of the op.
func (s *Side) Device() *device.Device { return s.dev }

// LaunchOf returns what a dispatch, or a combine that moves its rows first, gets if it asks for
// this.
func (s *Side) LaunchOf(dispatch bool, asked launch.Shape, tokens int, rowBytes uint64) launch.Shape {
	what := launch.Combine
	if dispatch {
		what = launch.Dispatch
	}
	g := s.kernels.grid(s.chooser.Choose(asked, what, tokens, rowBytes))
	return launch.Shape{Blocks: int(g.Blocks[0]), Warps: s.kernels.warps(g)}
}

// SpansHosts reports whether some ranks are on other hosts.
func (s *Side) SpansHosts() bool { return s.hosts != nil }

// HostsSum reports whether hosts sum the rows of their ranks in a combine.
func (s *Side) HostsSum() bool { return s.hosts.sums() }
