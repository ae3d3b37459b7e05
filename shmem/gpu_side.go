// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"mori/core/device"
	"mori/core/memory"
	"mori/shmem/internal/access"
	"mori/shmem/internal/arena"
	"mori/shmem/internal/heap"
	"mori/shmem/internal/peers"
)

// What kernels know of a World is a State of native/include/mori/shmem/state.hpp, which is filled into the variable mori_shmem_state of
// each module, and lies behind the table of peers, too. This is its layout, and that of what it points to.
const (
	stateSymbol  = "mori_shmem_state"
	stateVersion = 1
	stateBytes   = 64

	peerBytes = 16

	// How a Peer is reached: not at all (0), by loads and stores, or by the queue of remoteSide, or by one of nicSide.
	transportP2P    = 1
	transportRemote = 2
	transportNIC    = 3

	// WaitReport of native/include/mori/device/report.hpp.
	reportAddress  = 0
	reportExpected = 8
	reportSeen     = 16
	reportRank     = 24
	reportPeer     = 28
	reportReady    = 36
	reportBytes    = 40
)

// A deviceSide is what kernels of this PE's GPU need: where the heaps are, and a place for reports of waits that gave up.
type deviceSide struct {
	g      *access.GPU
	npes   int
	far    []int       // PEs that loads and stores do not reach
	remote *remoteSide // to those; nil if there are none
	sync   *heap.Block
	peers  *device.Memory
	report *device.HostMemory
	state  [stateBytes]byte

	mu      sync.Mutex
	modules []*Module
	barrier *device.Function // nil where there are no barriers
	own     *device.Module
	met     map[uint64]*device.Event // by stream: its latest barrier is over
}

// noTimeout is what kernels are told if waits of the World may last for ever.
const noTimeout = time.Duration(math.MaxInt64)

// reachesAll reports whether kernels come to all PEs.
func (s *deviceSide) reachesAll() bool { return len(s.far) == 0 || s.remote.device() != 0 }

func (s *deviceSide) isFar(pe int) bool { return slices.Contains(s.far, pe) }

// openSide makes it. Collective: without a heap, in isolation, the words of barriers need a block of their own.
func (w *World) openSide(ctx context.Context) error {
	s := &deviceSide{g: w.gpu, npes: w.pes.N, sync: w.heap.Main()}
	w.side = s // close has it from here on
	w.pes.OnCheck(s.check)
	if s.sync == nil {
		b, err := w.blocks.New(ctx, heap.Spec{Name: "barrier words", Size: heap.PageSize, Limit: heap.PageSize, Align: arena.Grain, OnGPU: true})
		if err != nil {
			return err
		}
		s.sync = b
	}
	for pe := range w.pes.N {
		if s.sync.At(pe) == 0 {
			s.far = append(s.far, pe)
		}
	}
	if err := w.openRemote(ctx, s); err != nil {
		return err
	}
	err := s.fill(w)
	if err == nil && s.reachesAll() {
		// Not at the first barrier: loading may wait for what runs on the GPU, such as another PE's kernel that waits for this one's.
		_, err = s.kernel()
	}
	return w.pes.AllWell(ctx, err)
}

// fill makes the State.
func (s *deviceSide) fill(w *World) (err error) {
	table := make([]byte, w.pes.N*peerBytes)
	for pe := range w.pes.N {
		at, transport := s.sync.At(pe), uint32(transportP2P)
		if at == 0 {
			if at, transport = s.remote.device(), transportRemote; at == 0 {
				continue
			}
			if nic := s.remote.nic.peer(pe); nic != 0 {
				at, transport = nic, transportNIC
			}
		}
		binary.LittleEndian.PutUint64(table[pe*peerBytes:], at)
		binary.LittleEndian.PutUint32(table[pe*peerBytes+8:], transport)
	}
	if s.peers, err = s.g.Device.Alloc(uint64(len(table) + stateBytes)); err != nil {
		return access.NoMemory(err)
	}
	if s.report, err = s.g.Device.AllocHost(reportBytes); err != nil {
		return access.NoMemory(err)
	}
	clear(memory.Bytes(s.report.Addr(), reportBytes))
	limit := noTimeout
	if w.pes.Timeout > 0 {
		limit = w.pes.Timeout
	}
	b := binary.LittleEndian.AppendUint32(nil, stateVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(w.pes.Me))
	b = binary.LittleEndian.AppendUint32(b, uint32(w.pes.N))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s.far)))
	for _, v := range []uint64{s.sync.Base, s.sync.Size, 0, uint64(limit.Nanoseconds()), s.peers.Addr(), s.report.DeviceAddr()} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	copy(s.state[:], b)
	all := append(table, b...)
	defer runtime.KeepAlive(all)
	return s.g.Copy(s.peers.Addr(), memory.AddrOf(all), uint64(len(all)))
}

// State is what kernels know of the World as an address in the GPU's memory, of a mori::shmem::State (native/include/mori/shmem): for kernels whose module has
// several Worlds, and which are told of theirs by an argument. It is 0 where the heap is in host memory, and lives until Finalize.
func (w *World) State() uint64 {
	if w.side == nil || w.pes.Closed() {
		return 0
	}
	return w.side.peers.Addr() + uint64(w.pes.N*peerBytes)
}

// settle waits until no barrier is on its way on any stream: its kernel uses what close frees.
func (s *deviceSide) settle(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream, e := range s.met {
		if err := e.Wait(ctx); err != nil {
			return fmt.Errorf("wait for the barriers on stream %#x: %w", stream, err)
		}
	}
	return nil
}

// shut ends what kernels have under way by the network.
func (s *deviceSide) shut() error { return s.remote.shut() }

// close takes the State back from all modules, and frees what it points to. Nothing may be on its way.
func (s *deviceSide) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, e := range s.met {
		errs = append(errs, e.Close())
	}
	s.met = nil
	for _, m := range s.modules {
		errs = append(errs, m.write([stateBytes]byte{}))
	}
	if s.own != nil {
		errs = append(errs, s.own.Close())
	}
	errs = append(errs, s.remote.close())
	if s.peers != nil {
		errs = append(errs, s.peers.Close())
	}
	if s.report != nil {
		errs = append(errs, s.report.Close())
	}
	s.modules, s.own, s.barrier = nil, nil, nil
	return errors.Join(errs...)
}

// check returns why the World must end: a kernel has reported that it gave up, or the queue of
// kernels has lost a PE. It returns nil as long as all is well.
func (s *deviceSide) check() error {
	if s.report == nil {
		return nil
	}
	if memory.Load32(s.report.Addr()+reportReady) != 0 {
		return s.reported()
	}
	return s.remote.failed(s.far)
}

// reported is the report of a kernel, in words.
func (s *deviceSide) reported() error {
	word := func(off uint64) uint64 { return memory.Load64(s.report.Addr() + off) }
	addr, who := word(reportAddress), int32(memory.Load32(s.report.Addr()+reportRank))
	peer := ""
	if pe := int32(memory.Load32(s.report.Addr() + reportPeer)); pe >= 0 {
		if s.isFar(int(pe)) && word(reportExpected) == 0 {
			return fmt.Errorf("a kernel of PE %d gave up on PE %d: %w", who, pe, s.remote.meaning(int(pe), word(reportSeen)))
		}
		peer = fmt.Sprintf(" from PE %d", pe)
	}
	where := fmt.Sprintf("%#x", addr)
	if off := addr - s.sync.Base; off < s.sync.Size {
		where += fmt.Sprintf(" (offset %d of the heap)", off)
	}
	return fmt.Errorf("a kernel of PE %d gave up on the word at %s, which it wanted to be %d%s, and was %d at last: %w",
		who, where, word(reportExpected), peer, word(reportSeen), ErrTimeout)
}

// A Module is code on a GPU, such as a user's or Triton's, that knows a World.
type Module struct {
	dev     *device.Device
	addr    uint64           // of its State
	base    uint64           // of the allocation that has it
	written [stateBytes]byte // what it was filled with at last
}

// ModuleInit tells a module that is loaded on this PE's GPU, a CUmodule or hipModule_t, what its kernels need to know of the World. It may be
// repeated. The error wraps device.ErrNoSymbol if the module has no kernels that use symmetric memory. When the World ends, the module is told.
func (w *World) ModuleInit(id uint64) (*Module, error) {
	if err := w.pes.Check(); err != nil {
		return nil, fmt.Errorf("initialise a module: %w", err)
	}
	if w.side == nil {
		return nil, fmt.Errorf("initialise a module: the symmetric heap is in host memory: %w", errors.ErrUnsupported)
	}
	m, err := moduleState(w.gpu.Device.BorrowModule(id), w.gpu.Device)
	if err == nil {
		err = w.Refill(m)
	}
	if err != nil {
		return nil, fmt.Errorf("initialise module %#x: %w", id, err)
	}
	return m, nil
}

// Refill tells a module of an earlier World of the same GPU about this one.
func (w *World) Refill(m *Module) error {
	if w.side == nil || m.dev != w.gpu.Device {
		return nil
	}
	s := w.side
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

// Same reports whether two are of one module.
func (m *Module) Same(other *Module) bool { return m.dev == other.dev && m.addr == other.addr }

// moduleState finds the State of a module.
func moduleState(m *device.Module, d *device.Device) (*Module, error) {
	v, err := m.Variable(stateSymbol)
	if err != nil {
		return nil, err
	}
	if v.Bytes != stateBytes {
		return nil, fmt.Errorf("its %s has %d bytes, and this build's %d: compile it with the headers of this version: %w", stateSymbol, v.Bytes, stateBytes, ErrInvalid)
	}
	p, err := device.Lookup(v.Addr)
	if err != nil {
		return nil, err
	}
	return &Module{dev: d, addr: v.Addr, base: p.Base}, nil
}

// write fills in the State. A module that was unloaded meanwhile is left alone, as far as can be told: where it was, there is no such
// memory or something else.
func (m *Module) write(state [stateBytes]byte) error {
	g := access.NewGPU(m.dev, time.Minute, nil)
	err := m.replace(g, state)
	return errors.Join(err, g.Close())
}

func (m *Module) replace(g *access.GPU, state [stateBytes]byte) error {
	p, err := device.Lookup(m.addr)
	if err != nil || p.Base != m.base || p.Device != m.dev {
		return err
	}
	raw := make([]byte, stateBytes)
	defer runtime.KeepAlive(raw)
	if m.written != ([stateBytes]byte{}) {
		if err := g.Copy(memory.AddrOf(raw), m.addr, stateBytes); err != nil {
			return err
		}
		if [stateBytes]byte(raw) != m.written {
			return nil
		}
	}
	copy(raw, state[:])
	m.written = state
	return g.Copy(m.addr, memory.AddrOf(raw), stateBytes)
}

// BarrierOnStream puts a barrier of all PEs into a stream of this PE's GPU, a cudaStream_t or hipStream_t, or 0 for the default stream: what
// each PE has put before, on this stream or by calls here, is visible to what follows on the streams of all. It does not wait. Collective:
// the streams of all PEs meet in the order of the calls.
func (w *World) BarrierOnStream(stream uint64) error {
	if err := w.barrierOn(stream); err != nil {
		return fmt.Errorf("barrier on stream %#x: %w", stream, err)
	}
	return nil
}

func (w *World) barrierOn(stream uint64) error {
	if err := w.pes.Check(); err != nil {
		return err
	}
	if w.side == nil {
		return fmt.Errorf("the symmetric heap is in host memory: %w", errors.ErrUnsupported)
	}
	if s := w.side; !s.reachesAll() {
		return fmt.Errorf("the GPU does not reach the memory of %s: %w: %w", peers.NameAll(s.far), s.remote.whyNot(), errors.ErrUnsupported)
	}
	if w.net != nil {
		if err := w.net.Quiet(w.pes.Deadline()); err != nil {
			return err
		}
	}
	f, err := w.side.kernel()
	if err != nil {
		return err
	}
	s := w.gpu.Device.BorrowStream(stream)
	if err := w.gpu.Follow(s); err != nil {
		return err
	}
	return w.side.launch(f, s)
}

// launch puts the barrier's kernel into a stream, and an event behind it.
func (s *deviceSide) launch(f *device.Function, on *device.Stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.met[on.Handle()]
	if e == nil {
		var err error
		if e, err = s.g.Device.NewEvent(); err != nil {
			return err
		}
		if s.met == nil {
			s.met = map[uint64]*device.Event{}
		}
		s.met[on.Handle()] = e
	}
	if err := f.Launch(on, device.Grid{Threads: [3]uint32{32}}, nil); err != nil {
		return err
	}
	return e.Record(on)
}

// kernel is native/kernels/shmem/barrier.cpp, which knows this World.
func (s *deviceSide) kernel() (*device.Function, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.barrier != nil {
		return s.barrier, nil
	}
	m, err := s.g.Device.LoadKernels("shmem_barrier")
	if err != nil {
		return nil, err
	}
	var f *device.Function
	of, err := moduleState(m, s.g.Device)
	if err == nil {
		err = of.write(s.state)
	}
	if err == nil {
		f, err = m.Function("mori_shmem_barrier")
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	s.own, s.barrier = m, f
	return f, nil
}
