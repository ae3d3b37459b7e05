// SPDX-License-Identifier: MIT

package lab

import (
	"encoding/binary"
	"math/rand/v2"
)

const protocolTCP = 6

// flipBit changes one bit of a TCP packet's contents and makes its checksum fit again; false if there are none.
func flipBit(b []byte) bool {
	head := int(b[0]&15) * 4
	if b[9] != protocolTCP || len(b) < head+20 {
		return false
	}
	tcp := b[head:]
	data := int(tcp[12]>>4) * 4
	if data >= len(tcp) {
		return false
	}
	i := data + rand.IntN(len(tcp)-data)
	tcp[i] ^= 1 << rand.IntN(8)
	binary.BigEndian.PutUint16(tcp[16:], 0)
	binary.BigEndian.PutUint16(tcp[16:], checksum(b, tcp))
	return true
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
