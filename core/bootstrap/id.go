// SPDX-License-Identifier: MIT

package bootstrap

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"strconv"
	"syscall"
)

// A UniqueID is what ranks need to find each other: rank 0's address and a secret. Any process that
// has it can join, so send it over channels that strangers cannot read.
//
// All numbers are little endian; what is not named is zero:
//
//	version i32 = 1, secret [32], port u16, family u16 (AF_INET or AF_INET6), address [16],
//	..., crc32c of all before it u32 at 124
type UniqueID [IDSize]byte

// IDSize is the length of a UniqueID.
const IDSize = 128

const (
	idVersion = 1

	idSecret = 4 // where each part starts
	idPort   = idSecret + secretSize
	idFamily = idPort + 2
	idAddr   = idFamily + 2
	idUnused = idAddr + 16
	idSum    = IDSize - 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// newID is the id for a root at addr.
func newID(secret [secretSize]byte, addr netip.AddrPort) (id UniqueID) {
	binary.LittleEndian.PutUint32(id[:], idVersion)
	copy(id[idSecret:], secret[:])
	binary.LittleEndian.PutUint16(id[idPort:], addr.Port())
	family := syscall.AF_INET6
	if addr.Addr().Is4() {
		family = syscall.AF_INET
	}
	binary.LittleEndian.PutUint16(id[idFamily:], uint16(family))
	copy(id[idAddr:], addr.Addr().AsSlice())
	binary.LittleEndian.PutUint32(id[idSum:], crc32.Checksum(id[:idSum], castagnoli))
	return id
}

// ParseUniqueID parses b, which NewUniqueID created, possibly in another process. The error wraps
// ErrBadID.
func ParseUniqueID(b []byte) (UniqueID, error) {
	var id UniqueID
	if len(b) != IDSize {
		return id, fmt.Errorf("%w: %d bytes, want %d", ErrBadID, len(b), IDSize)
	}
	copy(id[:], b)
	return id, id.check()
}

// check rejects what NewUniqueID cannot have created.
func (id *UniqueID) check() error {
	family, port := binary.LittleEndian.Uint16(id[idFamily:]), binary.LittleEndian.Uint16(id[idPort:])
	switch v := int32(binary.LittleEndian.Uint32(id[:])); {
	case v != idVersion:
		return fmt.Errorf("%w: version %d, want %d", ErrBadID, v, idVersion)
	case binary.LittleEndian.Uint32(id[idSum:]) != crc32.Checksum(id[:idSum], castagnoli):
		return fmt.Errorf("%w: its checksum does not match: bytes were changed in transit", ErrBadID)
	case id.secret() == [secretSize]byte{}:
		return fmt.Errorf("%w: its magic is zero", ErrBadID)
	case family != syscall.AF_INET && family != syscall.AF_INET6:
		return fmt.Errorf("%w: address family %d, want %d (IPv4) or %d (IPv6)", ErrBadID, family, syscall.AF_INET, syscall.AF_INET6)
	case port == 0:
		return fmt.Errorf("%w: port 0", ErrBadID)
	case family == syscall.AF_INET && !zero(id[idAddr+4:idUnused]) || !zero(id[idUnused:idSum]):
		return fmt.Errorf("%w: bytes that must be zero are not", ErrBadID)
	}
	if a := id.addr().Addr(); a.IsUnspecified() || a.IsMulticast() || a.Is4In6() {
		return fmt.Errorf("%w: %v is not the address of a host", ErrBadID, a)
	}
	return nil
}

func zero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// addr returns the address at which rank 0 listens.
func (id *UniqueID) addr() netip.AddrPort {
	port := binary.LittleEndian.Uint16(id[idPort:])
	if binary.LittleEndian.Uint16(id[idFamily:]) == syscall.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(id[idAddr:idAddr+4])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(id[idAddr:idUnused])), port)
}

// name returns a name that only holders of the id can guess, for names that others can see.
func (id *UniqueID) name() string {
	proof := prove(id.secret(), "name")
	return hex.EncodeToString(proof[:16])
}

func (id *UniqueID) secret() [secretSize]byte { return [secretSize]byte(id[idSecret:idPort]) }

// String returns the address without the secret.
func (id UniqueID) String() string {
	return "unique id of rank 0 at " + net.JoinHostPort(id.addr().Addr().String(), strconv.Itoa(int(id.addr().Port())))
}
