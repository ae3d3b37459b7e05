// SPDX-License-Identifier: MIT

//lint:file-ignore U1000 msgpack finds the _msgpack fields by reflection

package io

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/vmihailenco/msgpack/v5"

	"mori/core/decode"
	"mori/core/fabric"
)

// Control messages: one byte type, four bytes length and four bytes crc32c in network order, a msgpack array. A client sends Hello first,
// then any number of other requests, one at a time; each gets one answer of its own type or an Error.

const (
	controlVersion  = 4
	controlMaxBytes = 64 << 10
	controlHeader   = 9
)

type controlType byte

const (
	controlHello     controlType = 1
	controlWelcome   controlType = 2
	controlAskRegion controlType = 3
	controlRegion    controlType = 4
	controlError     controlType = 5
	controlDrop      controlType = 6
	controlDropped   controlType = 7
	controlChallenge controlType = 8
	controlProof     controlType = 9
	controlTags      controlType = 10
	controlTagged    controlType = 11
	controlBeat      controlType = 12 // an empty body, answered by the same
)

// hello says who asks, and whom it believes to talk to.
type hello struct {
	_msgpack        struct{} `msgpack:",as_array"`
	Version         int
	Key             string `max:"256"` // MaxKey
	NodeID          string `max:"256"`
	Incarnation     uint64
	PeerKey         string `max:"256"`
	PeerIncarnation uint64 // 0 = not known
	Nonce           []byte
	Auth            bool   // the sender has a secret and wants proof
	PublicKey       []byte // of the sender
}

// challenge is the answer to a hello; see auth.go.
type challenge struct {
	_msgpack    struct{} `msgpack:",as_array"`
	Nonce       []byte
	Incarnation uint64
	PublicKey   []byte // of the sender
	Proof       []byte // empty without a secret
}

// proofReply is the client's answer to a challenge.
type proofReply struct {
	_msgpack  struct{} `msgpack:",as_array"`
	Proof     []byte   // empty without a secret
	Signature []byte
}

// welcome says who answers and where its transports listen. The token is the private data of the data connections that
// follow, and ties them to this hello.
type welcome struct {
	_msgpack    struct{} `msgpack:",as_array"`
	Version     int
	Key         string
	NodeID      string
	Incarnation uint64
	Notify      bool // wants to know of arrivals
	Token       []byte
	Endpoints   []endpointInfo `max:"64"`
	Proof       []byte         // empty without a secret
	Signature   []byte
}

// An endpointInfo is a transport of the peer, in its order of preference.
type endpointInfo struct {
	_msgpack struct{} `msgpack:",as_array"`
	Name     string
	Addr     string
}

// askRegion asks whether a region is registered with that key, and for its size.
type askRegion struct {
	_msgpack struct{} `msgpack:",as_array"`
	ID       uint32
	Secret   []byte
}

type regionReply struct {
	_msgpack struct{} `msgpack:",as_array"`
	Known    bool
	Size     uint64
}

// dropLink asks to close the data connection that was opened with a token. The answer comes when no byte of it can land any more.
type dropLink struct {
	_msgpack struct{} `msgpack:",as_array"`
	Token    []byte
}

type dropReply struct {
	_msgpack struct{} `msgpack:",as_array"`
	Found    bool     // it was still open
}

// tagsSent tells the tags of transfers; see packTags.
type tagsSent struct {
	_msgpack struct{} `msgpack:",as_array"`
	Packed   []byte
}

type tagsReply struct {
	_msgpack struct{} `msgpack:",as_array"`
	Taken    int
}

// A heartbeat asks for itself.
type heartbeat struct {
	_msgpack struct{} `msgpack:",as_array"`
}

// controlFailure is a refusal in words.
type controlFailure struct {
	_msgpack struct{} `msgpack:",as_array"`
	Text     string
}

// writeControl sends one message with one Write.
func writeControl(w io.Writer, kind controlType, body any) error {
	b, err := msgpack.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode control message %d: %w", kind, err)
	}
	if len(b) > controlMaxBytes {
		return fmt.Errorf("control message %d of %d bytes, want at most %d: %w", kind, len(b), controlMaxBytes, ErrInvalid)
	}
	out := make([]byte, controlHeader, controlHeader+len(b))
	out[0] = byte(kind)
	binary.BigEndian.PutUint32(out[1:], uint32(len(b)))
	binary.BigEndian.PutUint32(out[5:], controlSum(out, b))
	_, err = w.Write(append(out, b...))
	return err
}

// errUnreadable is a control message that is none of ours, or whose bytes were altered on their way.
// The reader closes the connection without an answer, and the client tries again.
var errUnreadable = errors.New("unreadable control message")

// readControl receives one message. The peer is a stranger: the length is checked before anything is allocated.
func readControl(r io.Reader) (controlType, []byte, error) {
	var head [controlHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if head[0] < byte(controlHello) || head[0] > byte(controlBeat) || n > controlMaxBytes {
		return 0, nil, fmt.Errorf("%w: type %d and %d bytes: %w", errUnreadable, head[0], n, ErrInvalid)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, fmt.Errorf("control message of type %d cut short: %w", head[0], err)
	}
	if sum := binary.BigEndian.Uint32(head[5:]); sum != controlSum(head[:], body) {
		return 0, nil, fmt.Errorf("%w: of type %d and %d bytes, altered on its way: %w", errUnreadable, head[0], n, fabric.ErrCRC)
	}
	return controlType(head[0]), body, nil
}

// controlSum is the crc32c of a message but for the four bytes that hold it.
func controlSum(head, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(head[:5], castagnoli), castagnoli, body)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// decodeControl fills to from a body. The peer may be a stranger; what is allocated is bounded by the length of the body.
func decodeControl(body []byte, to any) error {
	if err := decode.Unmarshal(body, to); err != nil {
		return fmt.Errorf("decode control message: %w: %w", err, ErrInvalid)
	}
	return nil
}
