// SPDX-License-Identifier: MIT

package frame

import (
	"encoding/binary"
	"fmt"
	"io"

	"mori/core/fabric"
)

// The side that dials sends a Handshake on every socket. The other side sends one HandshakeReply,
// on socket 0. Frames follow. On the wire:
//
//	handshake  magic u64, min u8, max u8, link u8, links u8, nonce [16], features u16, tx u16,
//	           length of private u16, private
//	reply      magic u64, version u8, verdict u8, length of private u16, features u16, tx u16,
//	           private

const (
	handshakeMagic = 0x6d6f72692d686931 // "mori-hi1"
	replyMagic     = 0x6d6f72692d616e31 // "mori-an1"
	replyLen       = 8 + 2 + 2 + 4

	// HandshakeLen is the length of a handshake without private data.
	HandshakeLen = 8 + 4 + 16 + 4 + 2
	// Version is the only version of the protocol that this package speaks.
	Version = 4
	// MaxPrivate bounds the private data of either side.
	MaxPrivate = 256
	// MaxTx bounds how many operations a side may have pending.
	MaxTx = 1 << 15
)

// The features of one side.
const (
	FeatureDecompress = 1 << iota // accepts frames with FlagCompressed
	FeatureDevice                 // its regions may be device memory: send pieces of one buffer at most
	FeatureFault                  // accepts frames with FlagTrailer and FlagVoid
)

// A Handshake is the first message on each socket of a connection. The sockets of one endpoint
// share a Nonce.
type Handshake struct {
	Min, Max    uint8 // versions that the sender speaks
	Link, Links uint8 // index and number of the endpoint's sockets
	Nonce       [16]byte
	Features    uint16
	Tx          uint16 // operations that the sender may have pending
	Private     []byte // of socket 0
}

// A Verdict is a listener's decision about a connection.
type Verdict uint8

// The verdicts.
const (
	Accepted        Verdict = 1 + iota
	Rejected                // by the program: Private is the reason
	VersionMismatch         // no common version
	Busy                    // too many requests are waiting
	verdictEnd
)

// A HandshakeReply answers the handshakes of all sockets of an endpoint.
type HandshakeReply struct {
	Version  uint8
	Verdict  Verdict
	Features uint16
	Tx       uint16
	Private  []byte
}

// Append appends the encoding of h to b.
func (h *Handshake) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, handshakeMagic)
	b = append(b, h.Min, h.Max, h.Link, h.Links)
	b = append(b, h.Nonce[:]...)
	b = binary.BigEndian.AppendUint16(b, h.Features)
	b = binary.BigEndian.AppendUint16(b, h.Tx)
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.Private)))
	return append(b, h.Private...)
}

// parseHandshake decodes the fixed part of a handshake and returns the length of the private data
// that follows. It accepts any input.
func parseHandshake(b []byte) (h Handshake, private int, err error) {
	if len(b) < HandshakeLen {
		return h, 0, ProtocolErr("handshake of %d bytes", len(b))
	}
	if m := binary.BigEndian.Uint64(b); m != handshakeMagic {
		return h, 0, ProtocolErr("handshake magic %#x", m)
	}
	h.Min, h.Max, h.Link, h.Links = b[8], b[9], b[10], b[11]
	copy(h.Nonce[:], b[12:28])
	h.Features, h.Tx = binary.BigEndian.Uint16(b[28:]), binary.BigEndian.Uint16(b[30:])
	private = int(binary.BigEndian.Uint16(b[32:]))
	switch {
	case h.Min > h.Max:
		return h, 0, ProtocolErr("handshake with versions %d to %d", h.Min, h.Max)
	case h.Links == 0 || h.Links > MaxLinks || h.Link >= h.Links:
		return h, 0, ProtocolErr("handshake for link %d of %d", h.Link, h.Links)
	case h.Tx == 0 || h.Tx > MaxTx:
		return h, 0, ProtocolErr("handshake with %d ops", h.Tx)
	case private > MaxPrivate || private > 0 && h.Link != 0:
		return h, 0, ProtocolErr("handshake for link %d with %d private bytes", h.Link, private)
	}
	return h, private, nil
}

// Append appends the encoding of a to b.
func (a *HandshakeReply) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, replyMagic)
	b = append(b, a.Version, byte(a.Verdict))
	b = binary.BigEndian.AppendUint16(b, uint16(len(a.Private)))
	b = binary.BigEndian.AppendUint16(b, a.Features)
	b = binary.BigEndian.AppendUint16(b, a.Tx)
	return append(b, a.Private...)
}

// parseReply decodes the fixed part of a reply and returns the length of the private data that
// follows. It accepts any input.
func parseReply(b []byte) (a HandshakeReply, private int, err error) {
	if len(b) < replyLen {
		return a, 0, ProtocolErr("handshake reply of %d bytes", len(b))
	}
	if m := binary.BigEndian.Uint64(b); m != replyMagic {
		return a, 0, ProtocolErr("handshake reply magic %#x", m)
	}
	a.Version, a.Verdict = b[8], Verdict(b[9])
	private = int(binary.BigEndian.Uint16(b[10:]))
	a.Features, a.Tx = binary.BigEndian.Uint16(b[12:]), binary.BigEndian.Uint16(b[14:])
	switch {
	case a.Verdict == 0 || a.Verdict >= verdictEnd:
		return a, 0, ProtocolErr("handshake reply with verdict %d", a.Verdict)
	case private > MaxPrivate:
		return a, 0, ProtocolErr("handshake reply with %d private bytes", private)
	case a.Verdict == Accepted && (a.Version != Version || a.Tx == 0 || a.Tx > MaxTx):
		return a, 0, ProtocolErr("accepting handshake reply of version %d with %d ops", a.Version, a.Tx)
	}
	return a, private, nil
}

// ReadHandshake reads a handshake and no byte after it, since frames may follow immediately.
func ReadHandshake(r io.Reader) (Handshake, error) {
	b := make([]byte, HandshakeLen, HandshakeLen+MaxPrivate)
	if n, err := io.ReadFull(r, b); err != nil {
		return Handshake{}, fmt.Errorf("handshake ends after %d of %d bytes: %w", n, HandshakeLen, err)
	}
	h, n, err := parseHandshake(b)
	if err != nil {
		return h, err
	}
	h.Private = b[HandshakeLen : HandshakeLen+n]
	if m, err := io.ReadFull(r, h.Private); err != nil {
		return h, fmt.Errorf("handshake ends after %d of %d private bytes: %w", m, n, err)
	}
	return h, nil
}

// ReadHandshakeReply reads a reply and no byte after it.
func ReadHandshakeReply(r io.Reader) (HandshakeReply, error) {
	b := make([]byte, replyLen, replyLen+MaxPrivate)
	if n, err := io.ReadFull(r, b); err != nil {
		return HandshakeReply{}, fmt.Errorf("handshake reply ends after %d of %d bytes: %w", n, replyLen, err)
	}
	a, n, err := parseReply(b)
	if err != nil {
		return a, err
	}
	a.Private = b[replyLen : replyLen+n]
	if m, err := io.ReadFull(r, a.Private); err != nil {
		return a, fmt.Errorf("handshake reply ends after %d of %d private bytes: %w", m, n, err)
	}
	return a, nil
}

// CheckVersion returns an error if the sender of h does not speak Version.
func (h *Handshake) CheckVersion() error {
	if h.Min > Version || h.Max < Version {
		return fmt.Errorf("peer supports versions %d to %d, this side %d: %w", h.Min, h.Max, Version, fabric.ErrProtocol)
	}
	return nil
}
