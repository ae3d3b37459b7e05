// SPDX-License-Identifier: MIT

package emu

import (
	"encoding/binary"

	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
)

var le = binary.LittleEndian

// A cq is a completion queue. Its ring is read by others while it is written, so the last 8 bytes
// of an entry are one store, after all others.
type cq struct {
	nic           *NIC
	num           uint32
	addr, dbr     uint64
	mem, dbrMem   Memory
	log           uint32
	collapsed     bool
	ignoreOverrun bool
	users         int
	release       func()

	produced uint64
	read     uint64 // of a family's, as far as doorbells have said
	broken   bool   // by overrun: nothing is written any more
	waiting  []waitingCQE
}

// A waitingCQE is a completion that the chaos holds back.
type waitingCQE struct {
	bytes [mlx5.CQEBytes]byte
	due   uint64 // round
	step  uint8
}

// add completes work. inline, of up to 32 bytes, goes into the entry.
func (c *cq) add(e mlx5.CQE, inline []byte) {
	var b [mlx5.CQEBytes]byte
	if inline != nil {
		e.Format = 1
	}
	e.Put(b[:])
	copy(b[:32], inline)
	c.put(b[:])
}

// put has an entry written, now or, by the chaos, later.
func (c *cq) put(b []byte) {
	var w waitingCQE
	copy(w.bytes[:], b)
	chaos := &c.nic.opts.Chaos
	if chaos.DelayCQE > 0 {
		w.due = c.nic.round + uint64(c.nic.rnd.IntN(chaos.DelayCQE))
	}
	if chaos.TwoStepCQE && !c.collapsed {
		w.step = 1
	}
	c.waiting = append(c.waiting, w)
	c.drain()
}

// drain writes the completions whose time has come, in order.
func (c *cq) drain() (moved bool) {
	for len(c.waiting) > 0 && !c.broken && c.waiting[0].due <= c.nic.round {
		moved = true
		if w := &c.waiting[0]; w.step > 0 {
			w.step = 0
			w.due = c.nic.round + 1 + uint64(c.nic.rnd.IntN(20))
			c.scribble()
			continue
		}
		c.write(&c.waiting[0].bytes)
		c.waiting = c.waiting[1:]
	}
	return moved
}

func (c *cq) slot() uint64 { return c.addr + c.entryBytes()*(c.produced&(1<<c.log-1)) }

// scribble fills the next entry with what is wrong, up to the byte that has its lap.
func (c *cq) scribble() {
	if c.full() {
		return
	}
	at, _ := c.lap()
	b := make([]byte, at)
	for i := range b {
		b[i] = byte(c.nic.rnd.Uint32())
	}
	_ = c.mem.Write(c.slot(), b)
}

// full reports that the next entry would overwrite one that was not read.
func (c *cq) full() bool {
	if c.ignoreOverrun {
		return false
	}
	if c.nic.family != nil {
		unread, err := c.unread()
		if err != nil {
			c.nic.violate("completion queue %#x: %v", c.num, err)
		}
		return err != nil || unread >= 1<<c.log
	}
	var b [4]byte
	if c.dbrMem.Read(c.dbr, b[:]) != nil {
		return true
	}
	read := binary.BigEndian.Uint32(b[:])
	return (uint32(c.produced)-read)&seqMask >= 1<<c.log
}

func (c *cq) write(b *[mlx5.CQEBytes]byte) {
	if c.full() {
		c.overrun()
		return
	}
	bit, first := c.lap()
	b[bit] = b[bit]&^1 | byte(c.produced>>c.log)&1 ^ first
	at, last := c.slot(), c.entryBytes()-8
	if err := c.mem.Write(at, b[:last]); err != nil {
		c.overrun()
		return
	}
	if _, plain := c.mem.(hostMemory); plain {
		_ = storeLast(at+last, le.Uint64(b[last:]))
	} else {
		_ = c.mem.Write(at+last, b[last:last+8])
	}
	c.produced++
}

func storeLast(addr, v uint64) (err error) {
	defer guard(&err)()
	sys.Store64(addr, v)
	return nil
}

// overrun breaks the queue and all queue pairs that complete there, as a NIC does: the entry is
// lost.
func (c *cq) overrun() {
	c.broken = true
	c.waiting = nil
	c.nic.violate("completion queue %#x overran: %d entries were written, it has 1<<%d", c.num, c.produced, c.log)
	for _, q := range c.nic.order {
		if q.scq == c || q.rcq == c {
			q.fail()
		}
	}
}
