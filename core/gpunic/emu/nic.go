// SPDX-License-Identifier: MIT

package emu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"mori/core/gpunic/emu/memory"
	"mori/core/gpunic/emu/wire"
	"mori/core/gpunic/mlx5"
)

// Memory is how a NIC accesses bytes that this process cannot access directly.
type Memory = memory.Memory

// A NIC is an emulated NIC. It implements mlx5.Cmd. All methods are safe for concurrent use.
type NIC struct {
	port port
	stop chan struct{}
	done chan struct{}

	mu        sync.Mutex // commands and the thread's rounds, one at a time
	common    common
	firmware  firmware
	closed    bool
	closeOnce sync.Once
	closeErr  error
}

var _ mlx5.Cmd = (*NIC)(nil)

// New makes a NIC and starts its thread. Close stops it.
func New(opts Options) (*NIC, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	family, err := familyOf(&opts)
	if err != nil {
		return nil, err
	}
	n := &NIC{
		common: common{opts: opts, family: family, rnd: rand.New(rand.NewPCG(opts.Seed, 1))},
		stop:   make(chan struct{}), done: make(chan struct{}),
	}
	n.port.common, n.port.wake = &n.common, make(chan struct{}, 1)
	n.firmware = newFirmware(&n.common, &n.port)
	if n.port.wire, n.port.gid, err = wire.Open(opts.Wire, n.port.deliver); err != nil {
		return nil, fmt.Errorf("open %s: %w", opts.Name, err)
	}
	go n.run()
	return n, nil
}

// locked calls f between rounds of the thread, unless the NIC is closed.
func (n *NIC) locked(f func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fmt.Errorf("%s: %w", n.common.opts.Name, mlx5.ErrClosed)
	}
	return f()
}

// AddMemory makes later calls of Umem access the bytes at addr through m. remove undoes that.
func (n *NIC) AddMemory(addr, bytes uint64, m Memory) (remove func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.firmware.addMemory(addr, bytes, m)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.firmware.removeMemory(addr, bytes)
	}
}

// Umem implements mlx5.Cmd. Memory of this process need not be mapped: a real NIC would pin it,
// this one detects an unmapped page at the first access.
func (n *NIC) Umem(addr, bytes uint64) (id uint32, err error) {
	err = n.locked(func() (err error) {
		id, err = n.firmware.newUmem(addr, bytes)
		return err
	})
	return id, err
}

// FreeUmem implements mlx5.Cmd. It returns an error while an object uses the memory.
func (n *NIC) FreeUmem(id uint32) error {
	return n.locked(func() error { return n.firmware.freeUmem(id) })
}

// UAR implements mlx5.Cmd.
func (n *NIC) UAR() (register uint64, page uint32, err error) {
	err = n.locked(func() (err error) {
		register, page, err = n.firmware.newUAR()
		return err
	})
	return register, page, err
}

// FreeUAR implements mlx5.Cmd. It returns an error while a queue uses the page.
func (n *NIC) FreeUAR(page uint32) error {
	return n.locked(func() error { return n.firmware.freeUAR(page) })
}

// Do implements mlx5.Cmd.
func (n *NIC) Do(in, out []byte) error {
	return n.locked(func() error {
		clear(out)
		answer, refused := n.firmware.carryOut(in)
		if refused != nil {
			answer = &mlx5.Reply{Status: refused.status, Syndrome: refused.syndrome}
		}
		copy(out, mlx5.Encode(answer))
		n.port.wakeUp()
		return nil
	})
}

// Info implements mlx5.Cmd.
func (n *NIC) Info() (mlx5.Info, error) {
	gid := n.port.gid
	return mlx5.Info{Name: n.common.opts.Name, EQN: eventQueue, Emulated: true, Ports: []mlx5.Port{{
		Active: true, Ethernet: true, MTU: n.common.opts.MTU, GID: gid, MAC: [6]byte(gid[10:]),
	}}}, nil
}

const eventQueue = 7

// Stats returns the counts so far.
func (n *NIC) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.common.stats
}

// Violations returns the mistakes of the NIC's user that a real NIC would reject or silently get
// wrong.
func (n *NIC) Violations() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.common.report()
}

// Close stops the thread. The NIC does not access memory after Close has returned.
func (n *NIC) Close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.closeOnce.Do(func() {
		close(n.stop)
		<-n.done
		n.closeErr = errors.Join(append(n.firmware.close(), n.port.wire.Close())...)
	})
	return n.closeErr
}

var le = binary.LittleEndian

// A common is what all parts of a NIC share: its options and format, the chaos, and the recorded
// mistakes.
type common struct {
	opts   Options
	family family

	rnd   *rand.Rand
	round uint64 // of the thread

	stats      Stats
	violations []string
}

// Stats counts what a NIC and its chaos have done.
type Stats struct {
	Entries                     uint64 // executed
	Packets                     uint64 // received, except those lost
	Lost, Duplicated, Reordered uint64
	SentAgain, NotReady         uint64 // how often it retransmitted, and was asked to wait
	Prefetched, Late            uint64 // records that changed without a doorbell, and delayed doorbells
}

const maxViolations = 64

// violate records a mistake of the NIC's user.
func (c *common) violate(format string, args ...any) {
	if len(c.violations) < maxViolations {
		c.violations = append(c.violations, fmt.Sprintf(format, args...))
	}
}

func (c *common) report() []string { return slices.Clone(c.violations) }

// chance returns true with a probability of n/1000.
func (c *common) chance(n int) bool { return n > 0 && c.rnd.IntN(1000) < n }

// within returns a random round, less than n rounds from now.
func (c *common) within(n int) uint64 { return c.round + uint64(c.rnd.IntN(n)) }
