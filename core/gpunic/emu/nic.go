// SPDX-License-Identifier: MIT

package emu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"

	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
)

// A NIC is an emulated one. It is a mlx5.Cmd; all its methods may be called at any time.
type NIC struct {
	opts   Options
	family family // nil: mlx5
	gid    mlx5.GID
	wire   wire
	stop   chan struct{}
	done   chan struct{}
	wake   chan struct{} // has a buffer of 1

	mu         sync.Mutex // commands and the thread's rounds, one at a time
	rnd        *rand.Rand
	round      uint64
	next       uint32 // number of the next object
	pds        map[uint32]int
	umems      map[uint32]*umem
	mkeys      map[uint32]*mkey
	uars       map[uint32]*uar
	cqs        map[uint32]*cq
	qps        map[uint32]*qp
	order      []*qp // by number, for rounds
	ranges     []umem
	held       []packet // by the chaos
	stats      Stats
	violations []string
	closed     bool
	closeOnce  sync.Once
	closeErr   error

	in struct {
		sync.Mutex
		packets []packet
	}
}

var _ mlx5.Cmd = (*NIC)(nil)

// A uar is a page of doorbells.
type uar struct {
	page, addr uint64
	free       func() error
	users      int
}

const registerAt = 0x800 // of a UAR page: MLX5_BF_OFFSET

// New makes a NIC and starts its thread. Close ends it.
func New(opts Options) (*NIC, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	n := &NIC{
		opts: opts, stop: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1),
		rnd: rand.New(rand.NewPCG(opts.Seed, 1)), next: 0x40, pds: map[uint32]int{}, umems: map[uint32]*umem{}, mkeys: map[uint32]*mkey{},
		uars: map[uint32]*uar{}, cqs: map[uint32]*cq{}, qps: map[uint32]*qp{},
	}
	var err error
	if n.family, err = familyOf(&opts); err != nil {
		return nil, err
	}
	if n.wire, n.gid, err = openWire(opts.Wire, n.deliver); err != nil {
		return nil, fmt.Errorf("open %s: %w", opts.Name, err)
	}
	go n.run()
	return n, nil
}

// deliver takes packets from the wire.
func (n *NIC) deliver(p packet) {
	n.in.Lock()
	if len(n.in.packets) < maxInbox {
		n.in.packets = append(n.in.packets, p)
	}
	n.in.Unlock()
	n.wakeUp()
}

// maxInbox is how many packets wait at most; more are lost.
const maxInbox = 1 << 14

// wakeUp has the thread look, if it waits.
func (n *NIC) wakeUp() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// AddMemory has Umem reach the bytes at addr by m. It returns what ends that for later calls.
func (n *NIC) AddMemory(addr, bytes uint64, m Memory) (remove func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ranges = append(n.ranges, umem{addr: addr, n: bytes, mem: m})
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.ranges = slices.DeleteFunc(n.ranges, func(u umem) bool { return u.addr == addr && u.n == bytes })
	}
}

func (n *NIC) memoryOf(addr, bytes uint64) Memory {
	page := uint64(os.Getpagesize()) - 1
	for _, r := range n.ranges {
		// A range need not begin on a page, but what is registered of it does.
		if begin := r.addr &^ page; addr >= begin && addr+bytes <= (r.addr+r.n+page)&^page {
			return r.mem
		}
	}
	return hostMemory{}
}

// number makes one for an object; all kinds share them, so that one in the place of another is
// found out.
func (n *NIC) number() uint32 {
	n.next++
	return n.next
}

// Umem is of mlx5.Cmd. Memory of this process need not be there: a NIC would pin it, this one finds
// out when it is touched.
func (n *NIC) Umem(addr, bytes uint64) (uint32, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch page := uint64(os.Getpagesize()); {
	case n.closed:
		return 0, n.gone()
	case bytes == 0 || addr == 0 || addr%page != 0 || bytes%page != 0 || addr+bytes < addr:
		return 0, fmt.Errorf("register %d bytes at %#x with the NIC: want whole pages: %w", bytes, addr, mlx5.ErrArgument)
	}
	id := n.number()
	n.umems[id] = &umem{addr: addr, n: bytes, mem: n.memoryOf(addr, bytes)}
	return id, nil
}

// FreeUmem is of mlx5.Cmd. It refuses while an object uses the memory.
func (n *NIC) FreeUmem(id uint32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	u := n.umems[id]
	switch {
	case n.closed:
		return n.gone()
	case u == nil:
		return fmt.Errorf("deregister memory %d: unknown handle: %w", id, mlx5.ErrArgument)
	case u.users > 0:
		return fmt.Errorf("deregister memory %d: %d objects use it: %w", id, u.users, mlx5.ErrArgument)
	}
	delete(n.umems, id)
	return nil
}

// UAR is of mlx5.Cmd.
func (n *NIC) UAR() (register uint64, page uint32, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return 0, 0, n.gone()
	}
	u := &uar{}
	if n.opts.UAR != nil {
		u.page, u.free, err = n.opts.UAR(os.Getpagesize())
	} else {
		var b []byte
		if b, err = sys.Alloc(os.Getpagesize()); err == nil {
			u.page, u.free = sys.AddrOf(b), func() error { return sys.Free(b) }
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("allocate a page of doorbells: %w", err)
	}
	u.addr = u.page + registerAt
	id := n.number()
	n.uars[id] = u
	return u.addr, id, nil
}

// FreeUAR is of mlx5.Cmd. It refuses while a queue uses the page.
func (n *NIC) FreeUAR(page uint32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	u := n.uars[page]
	switch {
	case n.closed:
		return n.gone()
	case u == nil:
		return fmt.Errorf("free doorbells %d: unknown handle: %w", page, mlx5.ErrArgument)
	case u.users > 0:
		return fmt.Errorf("free doorbells %d: %d objects use them: %w", page, u.users, mlx5.ErrArgument)
	}
	delete(n.uars, page)
	return u.free()
}

// Info is of mlx5.Cmd.
func (n *NIC) Info() (mlx5.Info, error) {
	return mlx5.Info{Name: n.opts.Name, EQN: eventQueue, Emulated: true, Ports: []mlx5.Port{{
		Active: true, Ethernet: true, MTU: n.opts.MTU, GID: n.gid, MAC: [6]byte(n.gid[10:]),
	}}}, nil
}

const eventQueue = 7

// Stats counts what a NIC has done, and what its chaos has.
type Stats struct {
	Entries                     uint64 // carried out
	Packets                     uint64 // received, but for those lost
	Lost, Duplicated, Reordered uint64
	SentAgain, NotReady         uint64 // how often it went back to send again, and was asked to wait
	Prefetched, Late            uint64 // looks at records without a doorbell that found something, and those that were put off
}

// Stats returns the counts so far.
func (n *NIC) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// Violations are what was done to the NIC that a real one would not have taken, or would have got
// wrong without a word.
func (n *NIC) Violations() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.violations)
}

const maxViolations = 64

func (n *NIC) violate(format string, args ...any) {
	if len(n.violations) < maxViolations {
		n.violations = append(n.violations, fmt.Sprintf(format, args...))
	}
}

func (n *NIC) gone() error { return fmt.Errorf("%s: %w", n.opts.Name, mlx5.ErrClosed) }

// Close ends the thread; memory is not touched any more when it returns.
func (n *NIC) Close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.closeOnce.Do(n.end)
	return n.closeErr
}

func (n *NIC) end() {
	close(n.stop)
	<-n.done
	errs := []error{n.wire.close()}
	for _, u := range n.uars {
		errs = append(errs, u.free())
	}
	n.closeErr = errors.Join(errs...)
}
