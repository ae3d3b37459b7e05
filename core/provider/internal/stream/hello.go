// SPDX-License-Identifier: MIT

package stream

import (
	"encoding/binary"
	"fmt"
	"io"

	"mori/core/fabric"
)

// The handshake: who dials sends a hello on every socket, and gets one answer, on link 0. Frames follow.
//
//	hello   magic u64, min u8, max u8, link u8, links u8, nonce [16], can u16, tx u16, private u16, its bytes
//	answer  magic u64, version u8, verdict u8, private u16, can u16, tx u16, its bytes
//
// The nonce ties the sockets of one endpoint together. can is what its sender understands beyond what all do, tx how many ops it may
// have on their way.

const (
	helloMagic  = 0x6d6f72692d686931 // "mori-hi1"
	answerMagic = 0x6d6f72692d616e31 // "mori-an1"
	helloLen    = 8 + 4 + 16 + 4 + 2
	answerLen   = 8 + 2 + 2 + 4

	protocolVersion = 4 // what this package speaks, the least and the most
	maxPrivate      = 256
	maxTx           = 1 << 15 // with the slots of pieces

	canUnpack = 1 // frames with flagZstd
	canDevice = 2 // reads and writes of its regions, which may be device memory, are cut into pieces of pieceMax

	canFault = 4 // frames with flagTrailer or flagVoid
)

type hello struct {
	min, max    uint8
	link, links uint8
	nonce       [16]byte
	can         uint16
	tx          uint16
	private     []byte
}

type verdict uint8

const (
	verdictAccepted verdict = 1 + iota
	verdictRejected         // by the program: private is its reason
	verdictVersion          // no common version
	verdictBusy             // too many requests wait
	verdictEnd
)

type answer struct {
	version uint8
	verdict verdict
	can     uint16
	tx      uint16
	private []byte
}

func (h *hello) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, helloMagic)
	b = append(b, h.min, h.max, h.link, h.links)
	b = append(b, h.nonce[:]...)
	b = binary.BigEndian.AppendUint16(b, h.can)
	b = binary.BigEndian.AppendUint16(b, h.tx)
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.private)))
	return append(b, h.private...)
}

// parseHello decodes the fixed part of a hello and says how many private bytes follow. Any input is answered.
func parseHello(b []byte) (h hello, private int, err error) {
	if len(b) < helloLen {
		return h, 0, protocolErr("hello of %d bytes", len(b))
	}
	if m := binary.BigEndian.Uint64(b); m != helloMagic {
		return h, 0, protocolErr("hello magic %#x", m)
	}
	h.min, h.max, h.link, h.links = b[8], b[9], b[10], b[11]
	copy(h.nonce[:], b[12:28])
	h.can, h.tx = binary.BigEndian.Uint16(b[28:]), binary.BigEndian.Uint16(b[30:])
	private = int(binary.BigEndian.Uint16(b[32:]))
	switch {
	case h.min > h.max:
		return h, 0, protocolErr("hello with versions %d to %d", h.min, h.max)
	case h.links == 0 || h.links > MaxLinks || h.link >= h.links:
		return h, 0, protocolErr("hello for link %d of %d", h.link, h.links)
	case h.tx == 0 || h.tx > maxTx:
		return h, 0, protocolErr("hello with %d ops", h.tx)
	case private > maxPrivate || private > 0 && h.link != 0:
		return h, 0, protocolErr("hello for link %d with %d private bytes", h.link, private)
	}
	return h, private, nil
}

func (a *answer) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, answerMagic)
	b = append(b, a.version, byte(a.verdict))
	b = binary.BigEndian.AppendUint16(b, uint16(len(a.private)))
	b = binary.BigEndian.AppendUint16(b, a.can)
	b = binary.BigEndian.AppendUint16(b, a.tx)
	return append(b, a.private...)
}

// parseAnswer decodes the fixed part of an answer and says how many private bytes follow. Any input is answered.
func parseAnswer(b []byte) (a answer, private int, err error) {
	if len(b) < answerLen {
		return a, 0, protocolErr("answer of %d bytes", len(b))
	}
	if m := binary.BigEndian.Uint64(b); m != answerMagic {
		return a, 0, protocolErr("answer magic %#x", m)
	}
	a.version, a.verdict = b[8], verdict(b[9])
	private = int(binary.BigEndian.Uint16(b[10:]))
	a.can, a.tx = binary.BigEndian.Uint16(b[12:]), binary.BigEndian.Uint16(b[14:])
	switch {
	case a.verdict == 0 || a.verdict >= verdictEnd:
		return a, 0, protocolErr("answer with verdict %d", a.verdict)
	case private > maxPrivate:
		return a, 0, protocolErr("answer with %d private bytes", private)
	case a.verdict == verdictAccepted && (a.version != protocolVersion || a.tx == 0 || a.tx > maxTx):
		return a, 0, protocolErr("accepting answer of version %d with %d ops", a.version, a.tx)
	}
	return a, private, nil
}

// readHello reads no byte beyond the hello: frames may follow at once.
func readHello(r io.Reader) (hello, error) {
	b := make([]byte, helloLen, helloLen+maxPrivate)
	if n, err := io.ReadFull(r, b); err != nil {
		return hello{}, fmt.Errorf("hello ends after %d of %d bytes: %w", n, helloLen, err)
	}
	h, n, err := parseHello(b)
	if err != nil {
		return h, err
	}
	h.private = b[helloLen : helloLen+n]
	if m, err := io.ReadFull(r, h.private); err != nil {
		return h, fmt.Errorf("hello ends after %d of %d private bytes: %w", m, n, err)
	}
	return h, nil
}

func readAnswer(r io.Reader) (answer, error) {
	b := make([]byte, answerLen, answerLen+maxPrivate)
	if n, err := io.ReadFull(r, b); err != nil {
		return answer{}, fmt.Errorf("answer ends after %d of %d bytes: %w", n, answerLen, err)
	}
	a, n, err := parseAnswer(b)
	if err != nil {
		return a, err
	}
	a.private = b[answerLen : answerLen+n]
	if m, err := io.ReadFull(r, a.private); err != nil {
		return a, fmt.Errorf("answer ends after %d of %d private bytes: %w", m, n, err)
	}
	return a, nil
}

// commonVersion is the newest version that a hello and this package share.
func commonVersion(h *hello) (uint8, error) {
	if h.min > protocolVersion || h.max < protocolVersion {
		return 0, fmt.Errorf("peer speaks versions %d to %d, this side %d: %w", h.min, h.max, protocolVersion, fabric.ErrProtocol)
	}
	return protocolVersion, nil
}
