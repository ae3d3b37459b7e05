// SPDX-License-Identifier: MIT

package bnxt

import (
	"encoding/binary"
	"fmt"
)

// CQEBytes is the size of a completion entry: struct bnxt_re_req_cqe and bnxt_re_bcqe.
const CQEBytes = 32

// Types of completions: enum bnxt_re_wc_type.
const (
	CQERequester = 0x00
	CQEReceiver  = 0x01
	CQETerminal  = 0x0e // the queue pair is in the error state
)

// A Status says why a requester's work failed: enum bnxt_re_req_wc_status.
type Status uint8

// Statuses.
const (
	StatusOK            Status = 0x00
	StatusBadResponse   Status = 0x01
	StatusLength        Status = 0x02
	StatusOperation     Status = 0x03
	StatusProtection    Status = 0x04
	StatusMemory        Status = 0x05
	StatusRemoteInvalid Status = 0x06
	StatusRemoteAccess  Status = 0x07
	StatusRemoteOp      Status = 0x08
	StatusRNR           Status = 0x09
	StatusRetry         Status = 0x0a
	StatusFlush         Status = 0x0b
)

var statusText = [...]string{
	"done", "bad response", "local length error", "local operation error", "local protection error", "memory operation error",
	"remote invalid request", "remote access error", "remote operation error", "receiver not ready, retries exceeded",
	"transport retries exceeded", "flushed",
}

func (s Status) String() string {
	if int(s) < len(statusText) {
		return statusText[s]
	}
	return fmt.Sprintf("status %#x", uint8(s))
}

// A CQE is a completion of a requester.
type CQE struct {
	Handle uint64 // of the queue pair, as the host set it
	Index  uint16 // after the last completed entry, modulo the ring; meaningless with an error
	Type   uint8
	Status Status
	Phase  bool // set in the first lap over the ring, then toggles with each lap
}

// Put writes the entry to the CQEBytes of b.
func (c CQE) Put(b []byte) {
	clear(b[:CQEBytes])
	le := binary.LittleEndian
	le.PutUint64(b, c.Handle)
	le.PutUint32(b[8:], uint32(c.Index))
	word := uint32(c.Type&0xf)<<1 | uint32(c.Status)<<8
	if c.Phase {
		word |= 1
	}
	le.PutUint32(b[24:], word)
}

// ParseCQE parses an entry of CQEBytes, valid or not.
func ParseCQE(b []byte) CQE {
	le := binary.LittleEndian
	word := le.Uint32(b[24:])
	return CQE{
		Handle: le.Uint64(b), Index: uint16(le.Uint32(b[8:])), Type: uint8(word>>1) & 0xf, Status: Status(word >> 8), Phase: word&1 != 0,
	}
}

// Types of doorbells: enum bnxt_re_db_que_type.
const (
	BellSend       = 0x0
	BellReceive    = 0x1
	BellCompletion = 0x4
)

// A Bell is the value that is written to a doorbell register: enum bnxt_re_db_mask.
type Bell struct {
	Type  uint8
	Queue uint32 // its number, 20 bits
	Index uint32 // after the last entry that is posted, or read; 24 bits, within the ring
	Epoch bool   // the parity of the lap
}

// Value returns the 8 bytes of the register, little-endian.
func (b Bell) Value() uint64 {
	low := b.Index & 0xffffff
	if b.Epoch {
		low |= 1 << 24
	}
	return uint64(b.Queue&0xfffff|1<<26|uint32(b.Type)<<28)<<32 | uint64(low)
}

// ParseBell parses a value that Value returned.
func ParseBell(v uint64) (Bell, error) {
	low, high := uint32(v), uint32(v>>32)
	b := Bell{Type: uint8(high >> 28), Queue: high & 0xfffff, Index: low & 0xffffff, Epoch: low>>24&1 != 0}
	if high>>26&1 == 0 || b.Value() != v {
		return b, fmt.Errorf("doorbell %#x: %w", v, ErrFormat)
	}
	return b, nil
}

// Count returns the bell's index as a count of entries, modulo two laps of a ring of 1<<log.
func (b Bell) Count(log uint32) uint64 {
	if b.Epoch {
		return uint64(b.Index) + 1<<log
	}
	return uint64(b.Index)
}
