// SPDX-License-Identifier: MIT

package ionic

import (
	"encoding/binary"
	"fmt"
)

// CQEBytes is the size of a completion entry: struct ionic_v1_cqe.
const CQEBytes = 32

// Types of completions: IONIC_V1_CQE_TYPE_*.
const (
	CQEReceive = 1
	CQESendMSN = 2 // how many messages the peer has acknowledged
	CQESendNPG = 3 // has the index of an entry: local work, or flushed
)

// A Status says why work failed: enum ionic_status.
type Status uint32

// Statuses.
const (
	StatusOK            Status = 0
	StatusLength        Status = 1
	StatusOperation     Status = 2
	StatusProtection    Status = 3
	StatusFlush         Status = 4
	StatusMemory        Status = 5
	StatusBadResponse   Status = 6
	StatusLocalAccess   Status = 7
	StatusRemoteInvalid Status = 8
	StatusRemoteAccess  Status = 9
	StatusRemoteOp      Status = 10
	StatusRetry         Status = 11
	StatusRNR           Status = 12
)

var statusText = [...]string{
	"done", "local length error", "local operation error", "local protection error", "flushed", "memory operation error", "bad response",
	"local access error", "remote invalid request", "remote access error", "remote operation error", "transport retries exceeded",
	"receiver not ready, retries exceeded",
}

func (s Status) String() string {
	if int64(s) < int64(len(statusText)) {
		return statusText[s]
	}
	return fmt.Sprintf("status %#x", uint32(s))
}

// A CQE is a completion of a send queue.
type CQE struct {
	MSN    uint32 // with CQESendMSN: how many messages are done
	Index  uint64 // with CQESendNPG: the entry's
	Status Status // of a failed entry
	Queue  uint32 // number of the queue pair, 24 bits
	Type   uint8
	Error  bool
	Color  bool // set in the first lap over the ring, then toggles with each lap
}

// Put writes the entry to the CQEBytes of b.
func (c CQE) Put(b []byte) {
	clear(b[:CQEBytes])
	be := binary.BigEndian
	be.PutUint32(b[4:], c.MSN)
	binary.LittleEndian.PutUint64(b[16:], c.Index)
	be.PutUint32(b[24:], uint32(c.Status))
	word := c.Queue<<8 | uint32(c.Type&7)<<5
	if c.Error {
		word |= 2
	}
	if c.Color {
		word |= 1
	}
	be.PutUint32(b[28:], word)
}

// ParseCQE parses an entry of CQEBytes, valid or not.
func ParseCQE(b []byte) CQE {
	be := binary.BigEndian
	word := be.Uint32(b[28:])
	return CQE{
		MSN: be.Uint32(b[4:]), Index: binary.LittleEndian.Uint64(b[16:]), Status: Status(be.Uint32(b[24:])), Queue: word >> 8,
		Type: uint8(word>>5) & 7, Error: word&2 != 0, Color: word&1 != 0,
	}
}

// A Bell is the value that is written to the register of send queues, or to that of completion
// queues; see ionic_queue_dbell_val.
type Bell struct {
	Queue uint32 // its number, 24 bits
	Index uint16 // after the last entry that is posted, or read, modulo the ring
}

// Value returns the 8 bytes of the register, little-endian.
func (b Bell) Value() uint64 { return uint64(b.Queue&0xffffff)<<24 | uint64(b.Index) }

// ParseBell parses a value that Value returned.
func ParseBell(v uint64) (Bell, error) {
	b := Bell{Queue: uint32(v>>24) & 0xffffff, Index: uint16(v)}
	if b.Value() != v {
		return b, fmt.Errorf("doorbell %#x: %w", v, ErrFormat)
	}
	return b, nil
}
