// SPDX-License-Identifier: MIT

package verbs

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"

	"mori/core/fabric"
	"mori/core/provider/internal/grant"
	"mori/native/verbs"
)

// The frames that verbs adds to the stream, in addition to those of package grant. All numbers are
// big-endian.
const (
	frameOffer   = grant.FrameOwn + iota // from the side that dialed: its rails
	frameAnswer                          // from the other side: its rails, one for each offer that it takes
	frameUp                              // from the side that dialed: its queue pairs can receive
	frameCredit                          // from the target of sends: freed receives; see notice.go
	frameNoRails                         // from either side, at most once: why its setup failed, as text; it then ends the connection
)

// setupVersion is the first byte of an offer and an answer.
const setupVersion = 3

// maxReason is the most bytes of a reason that are sent or accepted.
const maxReason = 1024

// encodeReason returns the body of a frameNoRails.
func encodeReason(why error) []byte {
	text := why.Error()
	return []byte(text[:min(len(text), maxReason)])
}

// parseReason is the inverse of encodeReason. Its result is printable; the bytes are untrusted.
func parseReason(b []byte) (string, error) {
	if len(b) == 0 || len(b) > maxReason {
		return "", fmt.Errorf("reason of %d bytes, want 1 to %d: %w", len(b), maxReason, fabric.ErrProtocol)
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, string(b)), nil
}

// A railDesc describes one side of a rail to the other side.
type railDesc struct {
	gid       [16]byte
	lid       uint16
	link      verbs.LinkLayer
	mtu       uint16 // bytes
	readDepth uint8  // pending reads and atomics that its queue pairs accept as their target
	psn       uint32
	recvs     uint16   // receives that are posted to each of its queue pairs
	index     uint8    // of its NIC among equal hosts
	wire      uint32   // number of the queue pair for messages; 0: none
	wireRecvs uint16   // receives that are posted to it
	wireBytes uint16   // of each
	qps       []uint32 // numbers of queue pairs
}

const railLen = 16 + 2 + 1 + 2 + 1 + 4 + 2 + 1 + 1 + 4 + 2 + 2

func encodeRails(rails []railDesc) []byte {
	b := []byte{setupVersion, byte(len(rails))}
	for i := range rails {
		r := &rails[i]
		b = append(b, r.gid[:]...)
		b = binary.BigEndian.AppendUint16(b, r.lid)
		b = append(b, byte(r.link))
		b = binary.BigEndian.AppendUint16(b, r.mtu)
		b = append(b, r.readDepth)
		b = binary.BigEndian.AppendUint32(b, r.psn)
		b = binary.BigEndian.AppendUint16(b, r.recvs)
		b = append(b, byte(len(r.qps)), r.index)
		b = binary.BigEndian.AppendUint32(b, r.wire)
		b = binary.BigEndian.AppendUint16(b, r.wireRecvs)
		b = binary.BigEndian.AppendUint16(b, r.wireBytes)
		for _, q := range r.qps {
			b = binary.BigEndian.AppendUint32(b, q)
		}
	}
	return b
}

// parseRails is the inverse of encodeRails. The bytes are untrusted.
func parseRails(b []byte) ([]railDesc, error) {
	if len(b) < 2 || b[0] != setupVersion || b[1] < 1 || b[1] > maxRails {
		return nil, fmt.Errorf("rails in %d bytes, want version %d and 1 to %d of them: %w", len(b), setupVersion, maxRails, fabric.ErrProtocol)
	}
	rails := make([]railDesc, b[1])
	b = b[2:]
	for i := range rails {
		if len(b) < railLen {
			return nil, fmt.Errorf("rail %d is truncated: %w", i, fabric.ErrProtocol)
		}
		r := &rails[i]
		copy(r.gid[:], b)
		r.lid, r.link = binary.BigEndian.Uint16(b[16:]), verbs.LinkLayer(b[18])
		r.mtu, r.readDepth, r.psn = binary.BigEndian.Uint16(b[19:]), b[21], binary.BigEndian.Uint32(b[22:])
		r.recvs = binary.BigEndian.Uint16(b[26:])
		n := int(b[28])
		r.index = b[29]
		r.wire, r.wireRecvs, r.wireBytes = binary.BigEndian.Uint32(b[30:]), binary.BigEndian.Uint16(b[34:]), binary.BigEndian.Uint16(b[36:])
		b = b[railLen:]
		if n < 1 || n > maxQPs || len(b) < 4*n || r.mtu < 256 || r.psn >= 1<<24 || r.wire >= 1<<24 || r.wire != 0 && (r.wireRecvs < 1 || r.wireBytes < 1) {
			return nil, fmt.Errorf("rail %d of %d queue pairs, MTU %d, PSN %#x, messages by %d: %w", i, n, r.mtu, r.psn, r.wire, fabric.ErrProtocol)
		}
		for range n {
			q := binary.BigEndian.Uint32(b)
			if q >= 1<<24 {
				return nil, fmt.Errorf("rail %d with queue pair %#x: %w", i, q, fabric.ErrProtocol)
			}
			r.qps = append(r.qps, q)
			b = b[4:]
		}
	}
	if len(b) != 0 {
		return nil, fmt.Errorf("%d bytes after the last rail: %w", len(b), fabric.ErrProtocol)
	}
	return rails, nil
}

// A regionRef is the address, size and keys of a peer's region.
type regionRef struct {
	base, size uint64
	access     fabric.Access
	chunk      uint64 // bytes of a piece, which has its own key
	keys       [][]uint32
}

const regionRefLen = 8 + 8 + 4 + 8 + 1

func (r *regionRef) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, r.base)
	b = binary.BigEndian.AppendUint64(b, r.size)
	b = binary.BigEndian.AppendUint32(b, uint32(r.access))
	b = binary.BigEndian.AppendUint64(b, r.chunk)
	b = append(b, byte(len(r.keys)))
	for _, rail := range r.keys {
		for _, k := range rail {
			b = binary.BigEndian.AppendUint32(b, k)
		}
	}
	return b
}

// pieces returns how many keys a rail has for size bytes.
func pieces(size, chunk uint64) uint64 { return max(1, (size+chunk-1)/chunk) }

// parseRegionRef is the inverse of encode. The bytes are untrusted.
func parseRegionRef(b []byte) (r regionRef, err error) {
	if len(b) < regionRefLen {
		return r, fmt.Errorf("region reference in %d bytes: %w", len(b), fabric.ErrProtocol)
	}
	r.base, r.size = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	r.access, r.chunk = fabric.Access(binary.BigEndian.Uint32(b[16:])), binary.BigEndian.Uint64(b[20:])
	rails := uint64(b[28])
	b = b[regionRefLen:]
	if r.chunk == 0 || r.base+r.size < r.base || r.size+r.chunk < r.size || rails < 1 || rails > maxRails ||
		pieces(r.size, r.chunk) > uint64(len(b)) || uint64(len(b)) != 4*rails*pieces(r.size, r.chunk) {
		return r, fmt.Errorf("region reference of %d bytes at %#x in pieces of %d, with %d bytes of keys: %w", r.size, r.base, r.chunk, len(b), fabric.ErrProtocol)
	}
	for range rails {
		keys := make([]uint32, pieces(r.size, r.chunk))
		for i := range keys {
			keys[i] = binary.BigEndian.Uint32(b)
			b = b[4:]
		}
		r.keys = append(r.keys, keys)
	}
	return r, nil
}
