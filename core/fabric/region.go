// SPDX-License-Identifier: MIT

package fabric

import (
	"encoding/binary"
	"fmt"
)

// MemKind is the kind of memory of a Buffer.
type MemKind uint8

// The kinds of memory.
const (
	MemHost MemKind = iota
	MemCUDA
	MemHIP
)

// A Buffer is a range of memory, by address.
type Buffer struct {
	Addr   uint64
	Len    uint64
	Kind   MemKind
	Device int // the device's ordinal where Kind is not MemHost
}

// Access is the set of rights that a registration grants.
type Access uint32

// The rights. Local ones matter only if the provider's MRMode has MRLocal.
const (
	AccessRemoteRead Access = 1 << iota
	AccessRemoteWrite
	AccessLocalRead
	AccessLocalWrite
)

// A RegionKey identifies a region of a domain and proves the right to access it. ID is unique among
// the domain's open regions (ErrNoKey). Secret is random; the target compares it on every access.
type RegionKey struct {
	ID     uint64
	Secret [16]byte
}

// regionKeyVersion is the first byte of Raw.
const regionKeyVersion = 1

// RegionKeyRawLen is the length of RegionKey.Raw: version, id (big endian), secret, size (big
// endian).
const RegionKeyRawLen = 1 + 8 + 16 + 8

// Raw returns the portable form of the key of a region of size bytes, for Domain.Import.
func (k RegionKey) Raw(size uint64) []byte {
	b := make([]byte, 0, RegionKeyRawLen)
	b = append(b, regionKeyVersion)
	b = binary.BigEndian.AppendUint64(b, k.ID)
	b = append(b, k.Secret[:]...)
	return binary.BigEndian.AppendUint64(b, size)
}

// ParseRegionKey is the inverse of Raw. The bytes are untrusted: any input is safe.
func ParseRegionKey(raw []byte) (k RegionKey, size uint64, err error) {
	if len(raw) != RegionKeyRawLen || raw[0] != regionKeyVersion {
		return k, 0, fmt.Errorf("parse region key of %d bytes: %w", len(raw), ErrInvalid)
	}
	k.ID = binary.BigEndian.Uint64(raw[1:])
	copy(k.Secret[:], raw[9:25])
	return k, binary.BigEndian.Uint64(raw[25:]), nil
}
