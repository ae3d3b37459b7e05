// SPDX-License-Identifier: MIT

package lab

import (
	"encoding/binary"
	"math/rand/v2"
)

const protocolTCP = 6

// flipBit changes one bit of a TCP packet's contents and makes its checksum fit again; false
// without any.
func flipBit(b []byte) bool {
	data := contents(b)
	if len(data) == 0 {
		return false
	}
	data[rand.IntN(len(data))] ^= 1 << rand.IntN(8)
	mendChecksum(b)
	return true
}

// contents returns the contents of a TCP packet, empty without payload.
func contents(b []byte) []byte {
	head := int(b[0]&15) * 4
	if b[9] != protocolTCP || len(b) < head+20 {
		return nil
	}
	tcp := b[head:]
	return tcp[min(int(tcp[12]>>4)*4, len(tcp)):]
}

// mendChecksum makes the checksum of a TCP packet fit its contents.
func mendChecksum(b []byte) {
	tcp := b[int(b[0]&15)*4:]
	binary.BigEndian.PutUint16(tcp[16:], 0)
	binary.BigEndian.PutUint16(tcp[16:], checksum(b, tcp))
}

// checksum is TCP's over the segment and the addresses of its IPv4 header (RFC 9293, section 3.1).
func checksum(ip, tcp []byte) uint16 {
	sum := uint32(protocolTCP) + uint32(len(tcp))
	add := func(b []byte) {
		for ; len(b) >= 2; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	add(ip[12:20])
	add(tcp)
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
