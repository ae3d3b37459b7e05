// SPDX-License-Identifier: MIT

package gpu

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
	"mori/shmem/internal/remote"
)

// A State of native/include/mori/shmem/state.hpp is what kernels know of a World. It is written to
// the variable mori_shmem_state of each module, and also after the table of peers. This is its
// layout, and that of the structs it points to.
const (
	stateSymbol  = "mori_shmem_state"
	stateVersion = 1
	stateBytes   = 64

	peerBytes = 16

	// How a Peer is reached: not at all (0), by loads and stores, by the queue of queueSide, or by
	// a queue of nicSide.
	transportP2P    = 1
	transportRemote = 2
	transportNIC    = 3

	// WaitReport mirrors native/include/mori/device/report.hpp.
	reportAddress  = 0
	reportExpected = 8
	reportSeen     = 16
	reportRank     = 24
	reportPeer     = 28
	reportReady    = 36
	reportBytes    = 40
)

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
	state  [stateBytes]byte

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
	table := make([]byte, pes.N*peerBytes)
	for pe := range pes.N {
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
	if s.peers, err = s.env.GPU.Device.Alloc(uint64(len(table) + stateBytes)); err != nil {
		return access.NoMemory(err)
	}
	if s.report, err = s.env.GPU.Device.AllocHost(reportBytes); err != nil {
		return access.NoMemory(err)
	}
	clear(memory.Bytes(s.report.Addr(), reportBytes))
	limit := noTimeout
	if pes.Timeout > 0 {
		limit = pes.Timeout
	}
	b := binary.LittleEndian.AppendUint32(nil, stateVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(pes.Me))
	b = binary.LittleEndian.AppendUint32(b, uint32(pes.N))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s.far)))
	for _, v := range []uint64{s.sync.Base, s.sync.Size, 0, uint64(limit.Nanoseconds()), s.peers.Addr(), s.report.DeviceAddr()} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	copy(s.state[:], b)
	all := append(table, b...)
	defer runtime.KeepAlive(all)
	return s.env.GPU.Copy(s.peers.Addr(), memory.AddrOf(all), uint64(len(all)))
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

// check returns why the World must end: a kernel has reported a timeout, or the queue of kernels
// has lost a PE. Otherwise it returns nil.
func (s *Side) check() error {
	if s.report == nil {
		return nil
	}
	if memory.Load32(s.report.Addr()+reportReady) != 0 {
		return s.reported()
	}
	return s.remote.failed(s.far)
}

// reported turns the report of a kernel into an error.
func (s *Side) reported() error {
	word := func(off uint64) uint64 { return memory.Load64(s.report.Addr() + off) }
	addr, who := word(reportAddress), int32(memory.Load32(s.report.Addr()+reportRank))
	peer := ""
	if pe := int32(memory.Load32(s.report.Addr() + reportPeer)); pe >= 0 {
		if s.isFar(int(pe)) && word(reportExpected) == 0 {
			return fmt.Errorf("a kernel of PE %d timed out waiting for PE %d: %w", who, pe, s.remote.meaning(int(pe), word(reportSeen)))
		}
		peer = fmt.Sprintf(" from PE %d", pe)
	}
	where := fmt.Sprintf("%#x", addr)
	if off := addr - s.sync.Base; off < s.sync.Size {
		where += fmt.Sprintf(" (offset %d of the heap)", off)
	}
	return fmt.Errorf("a kernel of PE %d timed out waiting for the word at %s to become %d%s; its last value was %d: %w",
		who, where, word(reportExpected), peer, word(reportSeen), peers.ErrTimeout)
}
