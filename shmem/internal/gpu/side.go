// SPDX-License-Identifier: MIT

package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/device"
	"mori/core/memory"
	"mori/native/abi"
	"mori/shmem/internal/access"
	"mori/shmem/internal/arena"
	"mori/shmem/internal/heap"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/remote"
)

// stateSymbol is the variable of a module that gets a State (native/include/mori/shmem/state.hpp),
// which describes a World. The State also lies behind the table of peers.
const stateSymbol = "mori_shmem_state"

// An Env is what the GPU side needs from its World.
type Env struct {
	PEs  *peers.Group
	GPU  *access.GPU     // accesses the heap
	Net  *remote.Network // to PEs that loads and stores do not reach; nil if there are none
	Main *heap.Block     // the heap; nil in isolation
	Host string          // address for PEs of other hosts
	NIC  string          // NIC whose queues kernels post to; "": the host posts for them
}

// A Side is what kernels of this PE's GPU need: the locations of the heaps, and a buffer for
// reports of waits that timed out.
type Side struct {
	env    Env
	far    []int      // PEs that loads and stores do not reach
	remote *queueSide // the queue to those; nil if there are none
	sync   *heap.Block
	peers  *device.Memory
	report *device.HostMemory
	state  abi.ShmemState

	mu      sync.Mutex
	modules []*Module
	barrier *device.Function // nil if barriers are not supported
	own     *device.Module
	met     map[uint64]*device.Event // by stream: event after its latest barrier
}

// noTimeout is the limit of kernels if the World has no time limit.
const noTimeout = time.Duration(math.MaxInt64)

// reachesAll reports whether kernels reach all PEs.
func (s *Side) reachesAll() bool { return len(s.far) == 0 || s.remote.device() != 0 }

func (s *Side) isFar(pe int) bool { return slices.Contains(s.far, pe) }

// Open creates the GPU side. In isolation, which has no heap, the words of barriers get their own
// block. The Side also keeps what was created before an error. Collective.
func Open(ctx context.Context, env Env, blocks *heap.Maker) (*Side, error) {
	s := &Side{env: env, sync: env.Main}
	env.PEs.OnCheck(s.check)
	if s.sync == nil {
		b, err := blocks.New(ctx, heap.Spec{Name: "barrier words", Size: heap.PageSize, Limit: heap.PageSize, Align: arena.Grain, OnGPU: true})
		if err != nil {
			return s, err
		}
		s.sync = b
	}
	for pe := range env.PEs.N {
		if s.sync.At(pe) == 0 {
			s.far = append(s.far, pe)
		}
	}
	if err := s.openQueue(ctx); err != nil {
		return s, err
	}
	err := s.fill()
	if err == nil && s.reachesAll() {
		// Load now, not at the first barrier: loading may wait for running kernels, such as another
		// PE's kernel that waits for this PE's.
		_, err = s.kernel()
	}
	return s, env.PEs.AllWell(ctx, err)
}

// OwnBlock returns the block with the words of barriers, nil if they are in the heap.
func (s *Side) OwnBlock() *heap.Block {
	if s.sync == s.env.Main {
		return nil
	}
	return s.sync
}

// fill creates the State.
func (s *Side) fill() (err error) {
	pes := s.env.PEs
	table := make([]abi.ShmemPeer, pes.N)
	for pe := range table {
		p := &table[pe]
		p.Heap, p.Transport = s.sync.At(pe), abi.ShmemTransportP2P
		if p.Heap == 0 {
			if p.Heap, p.Transport = s.remote.device(), abi.ShmemTransportRemote; p.Heap == 0 {
				*p = abi.ShmemPeer{}
				continue
			}
			if nic := s.remote.nic.peer(pe); nic != 0 {
				p.Heap, p.Transport = nic, abi.ShmemTransportNIC
			}
		}
	}
	peersBytes := uint64(len(table) * abi.ShmemPeerBytes)
	if s.peers, err = s.env.GPU.Device.Alloc(peersBytes + abi.ShmemStateBytes); err != nil {
		return access.NoMemory(err)
	}
	if s.report, err = s.env.GPU.Device.AllocHost(abi.WaitReportBytes); err != nil {
		return access.NoMemory(err)
	}
	*s.waitReport() = abi.WaitReport{}
	limit := noTimeout
	if pes.Timeout > 0 {
		limit = pes.Timeout
	}
	s.state = abi.ShmemState{
		Version: abi.ShmemStateVersion, MyPE: int32(pes.Me), NPEs: int32(pes.N), Far: uint32(len(s.far)),
		Heap: s.sync.Base, HeapBytes: s.sync.Size, WaitLimit: uint64(limit.Nanoseconds()),
		Peers: s.peers.Addr(), Report: s.report.DeviceAddr(),
	}
	all := append(abi.SliceBytes(table), abi.Bytes(&s.state)...)
	defer runtime.KeepAlive(all)
	return s.env.GPU.Copy(s.peers.Addr(), memory.AddrOf(all), uint64(len(all)))
}

// waitReport returns the buffer for the report of a wait that timed out. Kernels write it.
func (s *Side) waitReport() *abi.WaitReport {
	return &memory.Slice[abi.WaitReport](s.report.Addr(), 1)[0]
}

// Settle waits until no barrier is pending on any stream, because its kernel uses memory that Close
// frees.
func (s *Side) Settle(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream, e := range s.met {
		if err := e.Wait(ctx); err != nil {
			return fmt.Errorf("wait for the barriers on stream %#x: %w", stream, err)
		}
	}
	return nil
}

// Shut ends the pending network operations of kernels.
func (s *Side) Shut() error { return s.remote.shut() }

// Close clears the State in all modules and frees what it points to. Nothing may be pending.
func (s *Side) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, e := range s.met {
		errs = append(errs, e.Close())
	}
	s.met = nil
	for _, m := range s.modules {
		errs = append(errs, m.write(abi.ShmemState{}))
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

// check returns why the World must end: a kernel has reported a timeout, or the queue of kernels
// has lost a PE. Otherwise it returns nil.
func (s *Side) check() error {
	if s.report == nil {
		return nil
	}
	if atomic.LoadUint32(&s.waitReport().Ready) != 0 {
		return s.reported()
	}
	return s.remote.failed(s.far)
}

// reported turns the report of a kernel into an error.
func (s *Side) reported() error {
	r := s.waitReport()
	expected, seen := atomic.LoadUint64(&r.Expected), atomic.LoadUint64(&r.Seen)
	addr, who := atomic.LoadUint64(&r.Address), int32(atomic.LoadUint32(&r.Rank))
	peer := ""
	if pe := int32(atomic.LoadUint32(&r.Peer)); pe >= 0 {
		if s.isFar(int(pe)) && expected == 0 {
			return fmt.Errorf("a kernel of PE %d timed out waiting for PE %d: %w", who, pe, s.remote.meaning(int(pe), seen))
		}
		peer = fmt.Sprintf(" from PE %d", pe)
	}
	where := fmt.Sprintf("%#x", addr)
	if off := addr - s.sync.Base; off < s.sync.Size {
		where += fmt.Sprintf(" (offset %d of the heap)", off)
	}
	return fmt.Errorf("a kernel of PE %d timed out waiting for the word at %s to become %d%s; its last value was %d: %w",
		who, where, expected, peer, seen, peers.ErrTimeout)
}
