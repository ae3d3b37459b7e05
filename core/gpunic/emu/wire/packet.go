// SPDX-License-Identifier: MIT

package wire

import (
	"encoding/binary"
	"fmt"

	"mori/core/gpunic/mlx5"
)

// Kinds of packets.
const (
	KindSend = 1 + iota
	KindWrite
	KindRead
	KindAtomic
	KindReadReply
	KindAtomicReply
	KindAck
	kindEnd
)

// Flags of packets.
const (
	FlagFirst  = 1 << iota // of a message
	FlagLast               // of a message
	FlagImm                // Imm is data for the peer's program
	FlagAckReq             // the peer must acknowledge
)

// Acknowledgements, in packets of KindAck. All except AckOK mean that all packets before Seq have
// arrived, and Seq has not.
const (
	AckOK = iota
	NakSequence
	NakRNR // Code contains the timer
	NakInvalid
	NakAccess
	NakOperation
	ackEnd
)

// A Packet travels from one queue pair to another.
type Packet struct {
	Src  mlx5.GID // not transmitted: the connection determines it
	Kind uint8
	Flag uint8
	Ack  uint8
	Code uint8 // of the RNR timer, or opcode of an atomic
	From uint32
	To   uint32
	Seq  uint32 // 24 bits

	Imm    uint32
	Key    uint32
	Addr   uint64
	Length uint64      // of the whole message or read, in its first packet
	Atomic mlx5.Atomic // of KindAtomic
	Data   []byte      // of sends, writes and replies
}

const (
	headerBytes = 84
	maxPayload  = 4096
	maxPacket   = headerBytes + maxPayload
)

// Append appends the encoded packet to b.
func (p *Packet) Append(b []byte) []byte {
	be := binary.BigEndian
	b = append(b, p.Kind, p.Flag, p.Ack, p.Code)
	b = be.AppendUint32(b, p.From)
	b = be.AppendUint32(b, p.To)
	b = be.AppendUint32(b, p.Seq)
	b = be.AppendUint32(b, p.Imm)
	b = be.AppendUint32(b, p.Key)
	b = be.AppendUint64(b, p.Addr)
	b = be.AppendUint64(b, p.Length)
	b = be.AppendUint64(b, p.Atomic.Swap)
	b = be.AppendUint64(b, p.Atomic.Compare)
	b = be.AppendUint64(b, p.Atomic.SwapMask)
	b = be.AppendUint64(b, p.Atomic.CompareMsk)
	b = be.AppendUint32(b, uint32(p.Atomic.Width))
	b = be.AppendUint64(b, uint64(len(p.Data)))
	return append(b, p.Data...)
}

// Parse parses a whole packet. Data points into b.
func (p *Packet) Parse(b []byte) error {
	if len(b) < headerBytes || len(b) > maxPacket {
		return fmt.Errorf("packet of %d bytes: %w", len(b), mlx5.ErrFormat)
	}
	be := binary.BigEndian
	*p = Packet{
		Kind: b[0], Flag: b[1], Ack: b[2], Code: b[3], From: be.Uint32(b[4:]), To: be.Uint32(b[8:]), Seq: be.Uint32(b[12:]),
		Imm: be.Uint32(b[16:]), Key: be.Uint32(b[20:]), Addr: be.Uint64(b[24:]), Length: be.Uint64(b[32:]), Data: b[headerBytes:],
		Atomic: mlx5.Atomic{
			Swap: be.Uint64(b[40:]), Compare: be.Uint64(b[48:]), SwapMask: be.Uint64(b[56:]), CompareMsk: be.Uint64(b[64:]),
			Width: int(be.Uint32(b[72:])),
		},
	}
	switch {
	case be.Uint64(b[76:]) != uint64(len(p.Data)):
		return fmt.Errorf("packet of %d bytes says %d of data: %w", len(b), be.Uint64(b[76:]), mlx5.ErrFormat)
	case p.Kind == 0 || p.Kind >= kindEnd, p.Flag > 2*FlagAckReq-1, p.Ack >= ackEnd, p.Seq > SeqMask, p.From > SeqMask, p.To > SeqMask:
		return fmt.Errorf("packet of kind %d, flags %#x, answer %d, sequence number %#x: %w", p.Kind, p.Flag, p.Ack, p.Seq, mlx5.ErrFormat)
	case p.Kind == KindAtomic && p.Atomic.Width != 4 && p.Atomic.Width != 8:
		return fmt.Errorf("atomic of %d bytes: %w", p.Atomic.Width, mlx5.ErrFormat)
	case p.Code > 31:
		return fmt.Errorf("packet with code %d: %w", p.Code, mlx5.ErrFormat)
	}
	return nil
}

// SeqMask masks the 24 bits of a sequence number.
const SeqMask = 0xffffff

// After returns how far sequence number a is after b; it is negative if a is before b. Numbers
// wrap.
func After(a, b uint32) int { return int(int32((a-b)<<8) >> 8) }
