// SPDX-License-Identifier: MIT

package emu

import (
	"sync"

	"mori/core/gpunic/emu/wire"
	"mori/core/gpunic/mlx5"
)

// A port sends and receives packets. Packets to the NIC itself do not use the wire. Chaos loses,
// duplicates and reorders arriving packets.
type port struct {
	*common
	gid  mlx5.GID
	wire wire.Wire
	wake chan struct{} // has a buffer of 1

	held []heldPacket  // by chaos
	due  []wire.Packet // of this round

	mu      sync.Mutex
	arrived []wire.Packet
}

// A heldPacket is a packet that arrives in a later round.
type heldPacket struct {
	wire.Packet
	due uint64
}

// maxInbox is the most packets from the wire that wait; more are lost.
const maxInbox = 1 << 14

// deliver queues a packet from the wire.
func (p *port) deliver(packet wire.Packet) {
	p.mu.Lock()
	if len(p.arrived) < maxInbox {
		p.arrived = append(p.arrived, packet)
	}
	p.mu.Unlock()
	p.wakeUp()
}

// wakeUp wakes the thread if it is waiting.
func (p *port) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// send sends a packet to the NIC with the GID to, which may be this one.
func (p *port) send(to mlx5.GID, packet *wire.Packet) {
	packet.Src = p.gid
	if to == p.gid {
		p.mu.Lock()
		p.arrived = append(p.arrived, *packet)
		p.mu.Unlock()
		return
	}
	p.wire.Send(to, packet)
}

// receive returns the packets that arrive in this round, after chaos. They are valid until the next
// round.
func (p *port) receive() []wire.Packet {
	p.mu.Lock()
	arrived := p.arrived
	p.arrived = nil
	p.mu.Unlock()
	due, chaos := p.release(p.due[:0]), &p.opts.Chaos
	for _, packet := range arrived {
		if p.chance(chaos.Loss) {
			p.stats.Lost++
			continue
		}
		p.stats.Packets++
		if p.chance(chaos.Duplicate) {
			p.stats.Duplicated++
			due = append(due, packet)
		}
		if p.chance(chaos.Reorder) {
			p.stats.Reordered++
			p.held = append(p.held, heldPacket{packet, 1 + p.within(100)})
			continue
		}
		due = append(due, packet)
	}
	p.due = due
	return due
}

// release appends the held packets that are due.
func (p *port) release(due []wire.Packet) []wire.Packet {
	kept := p.held[:0]
	for _, h := range p.held {
		if h.due <= p.round {
			due = append(due, h.Packet)
		} else {
			kept = append(kept, h)
		}
	}
	p.held = kept
	return due
}
