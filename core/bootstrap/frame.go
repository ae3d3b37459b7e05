// SPDX-License-Identifier: MIT

package bootstrap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Frames follow the handshake, in both directions. All numbers are little endian:
//
//	payload bytes u32, kind u8, op u8, zero u16, rank u32, root u32, seq u64, payload
type frame struct {
	kind    frameKind
	op      op
	rank    uint32 // the rank it is about
	root    uint32 // of a broadcast
	seq     uint64 // of a collective call: the first is 1
	payload []byte
}

type frameKind uint8

const (
	frameWelcome frameKind = 1 + iota // the rank was let in; payload is the identity of the process that did so
	frameParent                       // from rank 0; payload is the address of the rank's parent
	frameReady                        // a rank is connected with its parent and its children
	frameGo                           // all are
	frameUp                           // to the parent: all ranks below have entered a call; payload is their records
	frameDown                         // to the children: all ranks have; payload is all records
	frameReport                       // to rank 0, and from a rank that closes a broken group; payload is a failure
	frameFailed                       // from rank 0: the group is broken; payload is a failure
	frameLate                         // to rank 0: the sender timed out in call seq; payload is its time, in ns
	frameWho                          // from rank 0: the question of a diagnosis
	frameHere                         // the reply: the last call entered; rank is 1 while the sender is in it
	frameLeave                        // rank leaves after call seq
	frameEnd
)

const (
	headSize = 24
	maxFrame = 1 << 30
	maxBlob  = 256 << 20

	readStep = 256 << 10 // first memory for a payload; it doubles as the bytes come
)

// An op is a collective call.
type op uint8

const (
	opBarrier op = 1 + iota
	opAllGather
	opBroadcast
	opEnd
)

// A what says what a call is: all ranks must agree on it.
type what struct {
	op   op
	root uint32
}

func (w what) String() string {
	switch w.op {
	case opBarrier:
		return "barrier"
	case opAllGather:
		return "all-gather"
	case opBroadcast:
		return fmt.Sprintf("broadcast from rank %d", w.root)
	}
	return "no call"
}

func (f frame) what() what { return what{op: f.op, root: f.root} }

// head encodes all but the payload, which has n bytes.
func (f frame) head(n int) []byte {
	b := make([]byte, headSize)
	binary.LittleEndian.PutUint32(b, uint32(n))
	b[4], b[5] = byte(f.kind), byte(f.op)
	binary.LittleEndian.PutUint32(b[8:], f.rank)
	binary.LittleEndian.PutUint32(b[12:], f.root)
	binary.LittleEndian.PutUint64(b[16:], f.seq)
	return b
}

var errFrame = errors.New("malformed frame")

// parseHead reads headSize bytes and says how long the payload is.
func parseHead(b []byte) (f frame, n int, err error) {
	f = frame{
		kind: frameKind(b[4]), op: op(b[5]),
		rank: binary.LittleEndian.Uint32(b[8:]), root: binary.LittleEndian.Uint32(b[12:]), seq: binary.LittleEndian.Uint64(b[16:]),
	}
	length := binary.LittleEndian.Uint32(b)
	switch {
	case f.kind == 0 || f.kind >= frameEnd:
		return f, 0, fmt.Errorf("%w: kind %d", errFrame, f.kind)
	case f.op >= opEnd || f.op == 0 && (f.kind == frameUp || f.kind == frameDown):
		return f, 0, fmt.Errorf("%w: call %d", errFrame, f.op)
	case b[6] != 0 || b[7] != 0:
		return f, 0, fmt.Errorf("%w: bytes that must be zero are not", errFrame)
	case length > maxFrame || length > maxFailureText+8 && f.kind != frameUp && f.kind != frameDown:
		return f, 0, fmt.Errorf("%w: payload of %d bytes", errFrame, length)
	}
	return f, int(length), nil
}

// readFrame allocates at most 4 times what has come, and readStep.
func readFrame(r io.Reader) (frame, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	f, n, err := parseHead(head[:])
	if err != nil || n == 0 {
		return f, err
	}
	f.payload = make([]byte, min(n, readStep))
	for have := 0; ; {
		if _, err := io.ReadFull(r, f.payload[have:]); err != nil {
			return f, fmt.Errorf("payload of %d bytes: %w", n, err)
		}
		if have = len(f.payload); have == n {
			return f, nil
		}
		more := make([]byte, min(n, 2*have))
		copy(more, f.payload)
		f.payload = more
	}
}

func (f failure) append(b []byte) []byte {
	b = append(b, byte(f.kind))
	b = binary.LittleEndian.AppendUint32(b, uint32(f.rank))
	return append(b, f.text[:min(len(f.text), maxFailureText)]...)
}

// parseFailure answers any input. size is the number of ranks.
func parseFailure(b []byte, size int) (failure, error) {
	if len(b) < 5 || len(b) > 5+maxFailureText {
		return failure{}, fmt.Errorf("%w: failure of %d bytes", errFrame, len(b))
	}
	f := failure{kind: failureKind(b[0]), rank: int(binary.LittleEndian.Uint32(b[1:])), text: string(b[5:])}
	if f.kind == 0 || f.kind >= failEnd || f.rank >= size {
		return failure{}, fmt.Errorf("%w: failure %d of rank %d", errFrame, f.kind, f.rank)
	}
	return f, nil
}

// A record is one rank's blob in the payload of frameUp and frameDown: rank u32, bytes u32, the
// bytes.
const recordHead = 8

func appendRecordHead(b []byte, rank, n int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(rank))
	return binary.LittleEndian.AppendUint32(b, uint32(n))
}

// parseRecords puts the blobs in b, which it does not copy, into their places of blobs; a place
// that is taken is an error, as is any malformed input.
func parseRecords(b []byte, blobs [][]byte) error {
	for len(b) > 0 {
		if len(b) < recordHead {
			return fmt.Errorf("%w: %d bytes after the last record", errFrame, len(b))
		}
		rank, n := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
		b = b[recordHead:]
		switch {
		case uint64(rank) >= uint64(len(blobs)) || blobs[rank] != nil:
			return fmt.Errorf("%w: second or impossible record of rank %d", errFrame, rank)
		case uint64(n) > uint64(len(b)):
			return fmt.Errorf("%w: record of %d bytes, of which %d arrived", errFrame, n, len(b))
		}
		blobs[rank], b = b[:n:n], b[n:]
	}
	return nil
}
