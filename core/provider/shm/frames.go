// SPDX-License-Identifier: MIT

package shm

import (
	"encoding/binary"
	"fmt"

	"mori/core/fabric"
	"mori/core/provider/internal/grant"
)

// The extension frames of shm, in addition to those of package grant. They signal the state of the
// rings.
const (
	frameWake  = grant.FrameOwn + iota // producer to consumer: your inbound ring has an entry
	frameSpace                         // consumer to producer: your outbound ring has room
)

// A site says where a region is in the target's memory, and with which rights.
type site struct {
	base, size uint64
	access     fabric.Access
}

const siteLen = 8 + 8 + 4

func (s site) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, siteLen), s.base)
	b = binary.BigEndian.AppendUint64(b, s.size)
	return binary.BigEndian.AppendUint32(b, uint32(s.access))
}

func parseSite(b []byte) (s site, err error) {
	if len(b) != siteLen {
		return s, fmt.Errorf("grant description of %d bytes, want %d: %w", len(b), siteLen, fabric.ErrProtocol)
	}
	s.base, s.size = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	s.access = fabric.Access(binary.BigEndian.Uint32(b[16:]))
	if s.base+s.size < s.base {
		return s, fmt.Errorf("grant of %d bytes at %#x: %w", s.size, s.base, fabric.ErrProtocol)
	}
	return s, nil
}
