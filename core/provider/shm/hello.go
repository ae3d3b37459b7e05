// SPDX-License-Identifier: MIT

package shm

import (
	"encoding/binary"
	"fmt"

	"mori/core/fabric"
	"mori/core/provider/shm/internal/ring"
)

// A hello is what both sides send first on a new socket, together with the memfd of their inbound
// ring.
type hello struct {
	minVersion, maxVersion uint16
	ringEntries            uint32
	proofAddr              uint64   // address of proof in the sender's memory
	proof                  [16]byte // random
}

// The versions of shm's protocol on the socket and of its ring format.
const (
	minVersion = 3
	maxVersion = 3
)

const (
	helloMagic = "morishm\n"
	helloLen   = len(helloMagic) + 2 + 2 + 4 + 8 + 16
)

func (h *hello) encode() []byte {
	b := append(make([]byte, 0, helloLen), helloMagic...)
	b = binary.BigEndian.AppendUint16(b, h.minVersion)
	b = binary.BigEndian.AppendUint16(b, h.maxVersion)
	b = binary.BigEndian.AppendUint32(b, h.ringEntries)
	b = binary.BigEndian.AppendUint64(b, h.proofAddr)
	return append(b, h.proof[:]...)
}

// parseHello decodes any input. It accepts only our version and our ring format.
func parseHello(b []byte) (h hello, err error) {
	if len(b) != helloLen || string(b[:len(helloMagic)]) != helloMagic {
		return h, fmt.Errorf("the handshake is not mori's shm: %w", fabric.ErrProtocol)
	}
	b = b[len(helloMagic):]
	h.minVersion, h.maxVersion = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	h.ringEntries = binary.BigEndian.Uint32(b[4:])
	h.proofAddr = binary.BigEndian.Uint64(b[8:])
	copy(h.proof[:], b[16:])
	if h.minVersion > maxVersion || h.maxVersion < minVersion {
		return h, fmt.Errorf("peer supports shm versions %d to %d, this side %d to %d: %w", h.minVersion, h.maxVersion, minVersion, maxVersion, fabric.ErrProtocol)
	}
	if h.ringEntries != ring.Entries {
		return h, fmt.Errorf("peer's ring has %d entries, this side's %d: %w", h.ringEntries, ring.Entries, fabric.ErrProtocol)
	}
	return h, nil
}
