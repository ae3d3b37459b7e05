// SPDX-License-Identifier: MIT

package mlx5

import (
	"encoding/binary"
	"fmt"
)

// CQEBytes is the size of a completion entry.
const CQEBytes = 64

// Opcodes of completions: MLX5_CQE_* of mlx5dv.h.
const (
	CQEReq         = 0
	CQERecvImm     = 1 // of a write with immediate data
	CQERecvSend    = 2
	CQERecvSendImm = 3
	CQEReqError    = 13
	CQERecvError   = 14
	CQEInvalid     = 15
)

// A Syndrome says why work failed: MLX5_CQE_SYNDROME_* of mlx5dv.h.
type Syndrome uint8

// Syndromes.
const (
	SyndromeLength        Syndrome = 0x01
	SyndromeOperation     Syndrome = 0x02 // local queue pair operation
	SyndromeProtection    Syndrome = 0x04 // local memory
	SyndromeFlush         Syndrome = 0x05 // another entry failed, or the queue pair was stopped
	SyndromeBind          Syndrome = 0x06
	SyndromeBadResponse   Syndrome = 0x10
	SyndromeLocalAccess   Syndrome = 0x11
	SyndromeRemoteInvalid Syndrome = 0x12
	SyndromeRemoteAccess  Syndrome = 0x13
	SyndromeRemoteOp      Syndrome = 0x14
	SyndromeRetry         Syndrome = 0x15 // the peer did not respond
	SyndromeRNR           Syndrome = 0x16 // the peer had no receive entry
	SyndromeAborted       Syndrome = 0x22
)

var syndromeText = map[Syndrome]string{
	0: "none", SyndromeLength: "local length error", SyndromeOperation: "local operation error", SyndromeProtection: "local protection error",
	SyndromeFlush: "flushed", SyndromeBind: "memory window error", SyndromeBadResponse: "bad response", SyndromeLocalAccess: "local access error",
	SyndromeRemoteInvalid: "remote invalid request", SyndromeRemoteAccess: "remote access error", SyndromeRemoteOp: "remote operation error",
	SyndromeRetry: "transport retries exceeded", SyndromeRNR: "receiver not ready, retries exceeded", SyndromeAborted: "remote aborted",
}

func (s Syndrome) String() string {
	if t, ok := syndromeText[s]; ok {
		return t
	}
	return fmt.Sprintf("syndrome %#x", uint8(s))
}

// A CQE is a completion entry. If it reports an error, only Vendor, Syndrome, WQEOpcode, QPN,
// Counter, Opcode and Owner are valid.
type CQE struct {
	Imm, Bytes uint32
	Vendor     uint8
	Syndrome   Syndrome
	WQEOpcode  uint8
	QPN        uint32
	Counter    uint16 // index of the work entry's first block
	Opcode     uint8  // CQEReq, ...
	Format     uint8  // 1: results of up to 32 bytes are in the entry itself
	Owner      uint8  // 0 in the first lap over the ring, then 1, then 0 again
}

// Put writes the entry to all 64 bytes of b.
func (c *CQE) Put(b []byte) {
	clear(b[:CQEBytes])
	be := binary.BigEndian
	be.PutUint32(b[36:], c.Imm)
	if c.Opcode == CQEReqError || c.Opcode == CQERecvError {
		b[54], b[55] = c.Vendor, uint8(c.Syndrome)
	} else {
		be.PutUint32(b[44:], c.Bytes)
	}
	be.PutUint32(b[56:], uint32(c.WQEOpcode)<<24|c.QPN&0xffffff)
	be.PutUint16(b[60:], c.Counter)
	b[63] = c.Opcode<<4 | c.Format<<2&0xc | c.Owner&1
}

// ParseCQE parses an entry of 64 bytes, valid or not.
func ParseCQE(b []byte) (c CQE) {
	be := binary.BigEndian
	last := be.Uint32(b[56:])
	c = CQE{
		Imm: be.Uint32(b[36:]), WQEOpcode: uint8(last >> 24), QPN: last & 0xffffff, Counter: be.Uint16(b[60:]),
		Opcode: b[63] >> 4, Format: b[63] >> 2 & 3, Owner: b[63] & 1,
	}
	if c.Opcode == CQEReqError || c.Opcode == CQERecvError {
		c.Vendor, c.Syndrome = b[54], Syndrome(b[55])
	} else {
		c.Bytes = be.Uint32(b[44:])
	}
	return c
}

// Ready reports whether the last byte of an entry shows that the NIC has written it in the lap of
// consumer.
func Ready(last byte, consumer uint64, log uint32) bool {
	return last>>4 != CQEInvalid && last&1 == uint8(consumer>>log)&1
}

// Err returns the error of a completion, or nil.
func (c *CQE) Err() error {
	if c.Opcode != CQEReqError && c.Opcode != CQERecvError {
		return nil
	}
	return &WorkError{QPN: c.QPN, Counter: c.Counter, Opcode: c.WQEOpcode, Syndrome: c.Syndrome, Vendor: c.Vendor}
}

// A WorkError is the failure of an entry of a queue.
type WorkError struct {
	QPN      uint32
	Counter  uint16
	Opcode   uint8
	Syndrome Syndrome
	Vendor   uint8
}

func (e *WorkError) Error() string {
	return fmt.Sprintf("queue pair %#x, entry %d, opcode %#x: %v (vendor %#x)", e.QPN, e.Counter, e.Opcode, e.Syndrome, e.Vendor)
}
