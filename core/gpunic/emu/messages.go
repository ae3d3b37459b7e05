// SPDX-License-Identifier: MIT

package emu

import (
	"mori/core/gpunic/emu/memory"
	"mori/core/gpunic/emu/wire"
	"mori/core/gpunic/mlx5"
)

// A message is a write or a send of several packets that the responder is receiving.
type message struct {
	open   bool
	kind   uint8
	addr   uint64
	key    uint32
	left   uint64
	into   []mlx5.Data // of a send
	room   uint64
	offset uint64
	index  uint16 // of the receive entry
}

// fits reports whether a packet is the next one of the open message.
func (m *message) fits(p *wire.Packet, kind uint8) bool {
	n := uint64(len(p.Data))
	return m.open && m.kind == kind && n <= m.left && (p.Flag&wire.FlagLast != 0) == (n == m.left)
}

// write handles a packet of a write.
func (r *responder) write(p *wire.Packet) {
	m := &r.message
	if p.Flag&wire.FlagFirst != 0 && !r.beginWrite(p) {
		return
	}
	if !m.fits(p, wire.KindWrite) {
		r.refuse(wire.NakInvalid, p)
		return
	}
	var index uint16
	if p.Flag&wire.FlagImm != 0 {
		var ok bool
		if _, index, ok = r.takeReceive(p); !ok {
			if p.Flag&wire.FlagFirst != 0 {
				m.open = false // it is retransmitted
			}
			return
		}
	}
	n := uint64(len(p.Data))
	if n > 0 {
		k, err := r.Region(m.key, m.addr, n, memory.ToRemoteWrite) // it may have been closed meanwhile
		if err == nil {
			err = r.writes.write(k, m.addr, p.Data)
		}
		if err != nil {
			r.refuse(wire.NakAccess, p)
			return
		}
	}
	m.addr, m.left, m.offset = m.addr+n, m.left-n, m.offset+n
	m.open = p.Flag&wire.FlagLast == 0
	if p.Flag&wire.FlagImm != 0 {
		r.writes.flush()
		r.receives.complete(index, mlx5.CQE{Opcode: mlx5.CQERecvImm, Imm: p.Imm, Bytes: uint32(m.offset)})
	}
	r.next(p)
}

// beginWrite checks the whole write when its first packet arrives.
func (r *responder) beginWrite(p *wire.Packet) bool {
	if r.message.open || p.Length > 1<<r.ctx.LogMsgMax {
		r.refuse(wire.NakInvalid, p)
		return false
	}
	if p.Length > 0 {
		if _, err := r.Region(p.Key, p.Addr, p.Length, memory.ToRemoteWrite); err != nil || !r.ctx.RemoteWrite {
			r.refuse(wire.NakAccess, p)
			return false
		}
	}
	r.message = message{open: true, kind: wire.KindWrite, addr: p.Addr, key: p.Key, left: p.Length}
	return true
}

// receive handles a packet of a send.
func (r *responder) receive(p *wire.Packet) {
	m := &r.message
	if p.Flag&wire.FlagFirst != 0 && !r.beginReceive(p) {
		return
	}
	if !m.fits(p, wire.KindSend) {
		r.refuse(wire.NakInvalid, p)
		return
	}
	r.writes.flush()
	n := uint64(len(p.Data))
	if m.offset+n > m.room {
		r.receives.fail(m.index, mlx5.SyndromeLength)
		r.refuse(wire.NakInvalid, p)
		return
	}
	if err := r.Scatter(m.into, m.offset, p.Data); err != nil {
		r.noteAccess(err)
		r.receives.fail(m.index, mlx5.SyndromeProtection)
		r.refuse(wire.NakOperation, p)
		return
	}
	m.offset, m.left = m.offset+n, m.left-n
	if m.open = p.Flag&wire.FlagLast == 0; !m.open {
		c := mlx5.CQE{Opcode: mlx5.CQERecvSend, Bytes: uint32(m.offset)}
		if p.Flag&wire.FlagImm != 0 {
			c.Opcode, c.Imm = mlx5.CQERecvSendImm, p.Imm
		}
		r.receives.complete(m.index, c)
	}
	r.next(p)
}

// beginReceive takes a receive entry for a send.
func (r *responder) beginReceive(p *wire.Packet) bool {
	if r.message.open || p.Length > 1<<r.ctx.LogMsgMax {
		r.refuse(wire.NakInvalid, p)
		return false
	}
	into, index, ok := r.takeReceive(p)
	if !ok {
		return false
	}
	r.message = message{open: true, kind: wire.KindSend, into: into, index: index, left: p.Length}
	for _, d := range into {
		r.message.room += uint64(d.Bytes)
	}
	return true
}

// takeReceive takes the next entry of the receive queue. If there is none, it asks the peer to
// wait.
func (r *responder) takeReceive(p *wire.Packet) (into []mlx5.Data, index uint16, ok bool) {
	if r.receives.empty() {
		r.answer(wire.NakRNR, p.Seq, uint8(r.ctx.MinRNRNak))
		return nil, 0, false
	}
	into, index, err := r.receives.take()
	if err != nil {
		r.refuse(wire.NakOperation, p)
	}
	return into, index, err == nil
}
