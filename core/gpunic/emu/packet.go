// SPDX-License-Identifier: MIT

package emu

import (
	"encoding/binary"
	"fmt"

	"mori/core/gpunic/mlx5"
)

// Kinds of packets.
const (
	kindSend = 1 + iota
	kindWrite
	kindRead
	kindAtomic
	kindReadReply
	kindAtomicReply
	kindAck
	kindEnd
)

// Flags of packets.
const (
	flagFirst  = 1 << iota // of a message
	flagLast               // of a message
	flagImm                // Imm is data for the peer's program
	flagAckReq             // the peer is to answer
)

// Answers in packets of kindAck. All but ackOK say that what was sent before seq has come, and seq
// has not.
const (
	ackOK = iota
	nakSequence
	nakRNR // code has the timer
	nakInvalid
	nakAccess
	nakOperation
	ackEnd
)

// A packet goes from one queue pair to another.
type packet struct {
	src  mlx5.GID // not on the wire: the connection knows
	kind uint8
	flag uint8
	ack  uint8
	code uint8 // of the RNR timer, or opcode of an atomic
	from uint32
	to   uint32
	seq  uint32 // 24 bits

	imm    uint32
	key    uint32
	addr   uint64
	length uint64        // of the whole message or read, in its first packet
	atomic mlx5.Atomic   // of kindAtomic
	data   []byte        // of sends, writes and replies
	held   chaosDeadline // not on the wire
}

type chaosDeadline = uint64

const (
	packetHeader = 84
	maxPayload   = 4096
	maxPacket    = packetHeader + maxPayload
)

// append writes the packet behind b.
func (p *packet) append(b []byte) []byte {
	be := binary.BigEndian
	b = append(b, p.kind, p.flag, p.ack, p.code)
	b = be.AppendUint32(b, p.from)
	b = be.AppendUint32(b, p.to)
	b = be.AppendUint32(b, p.seq)
	b = be.AppendUint32(b, p.imm)
	b = be.AppendUint32(b, p.key)
	b = be.AppendUint64(b, p.addr)
	b = be.AppendUint64(b, p.length)
	b = be.AppendUint64(b, p.atomic.Swap)
	b = be.AppendUint64(b, p.atomic.Compare)
	b = be.AppendUint64(b, p.atomic.SwapMask)
	b = be.AppendUint64(b, p.atomic.CompareMsk)
	b = be.AppendUint32(b, uint32(p.atomic.Width))
	b = be.AppendUint64(b, uint64(len(p.data)))
	return append(b, p.data...)
}

// parse reads a whole packet; data points into b.
func (p *packet) parse(b []byte) error {
	if len(b) < packetHeader || len(b) > maxPacket {
		return fmt.Errorf("packet of %d bytes: %w", len(b), mlx5.ErrFormat)
	}
	be := binary.BigEndian
	*p = packet{
		kind: b[0], flag: b[1], ack: b[2], code: b[3], from: be.Uint32(b[4:]), to: be.Uint32(b[8:]), seq: be.Uint32(b[12:]),
		imm: be.Uint32(b[16:]), key: be.Uint32(b[20:]), addr: be.Uint64(b[24:]), length: be.Uint64(b[32:]), data: b[packetHeader:],
		atomic: mlx5.Atomic{
			Swap: be.Uint64(b[40:]), Compare: be.Uint64(b[48:]), SwapMask: be.Uint64(b[56:]), CompareMsk: be.Uint64(b[64:]),
			Width: int(be.Uint32(b[72:])),
		},
	}
	switch {
	case be.Uint64(b[76:]) != uint64(len(p.data)):
		return fmt.Errorf("packet of %d bytes says %d of data: %w", len(b), be.Uint64(b[76:]), mlx5.ErrFormat)
	case p.kind == 0 || p.kind >= kindEnd, p.flag > 2*flagAckReq-1, p.ack >= ackEnd, p.seq > seqMask, p.from > seqMask, p.to > seqMask:
		return fmt.Errorf("packet of kind %d, flags %#x, answer %d, sequence number %#x: %w", p.kind, p.flag, p.ack, p.seq, mlx5.ErrFormat)
	case p.kind == kindAtomic && p.atomic.Width != 4 && p.atomic.Width != 8:
		return fmt.Errorf("atomic of %d bytes: %w", p.atomic.Width, mlx5.ErrFormat)
	case p.code > 31:
		return fmt.Errorf("packet with code %d: %w", p.code, mlx5.ErrFormat)
	}
	return nil
}

const seqMask = 0xffffff

// after is how far a is behind b, less than 0 if before: sequence numbers have 24 bits and wrap.
func after(a, b uint32) int { return int(int32((a-b)<<8) >> 8) }
