// SPDX-License-Identifier: MIT

// Package messagetest has bodies of messages that attack their reader.
package messagetest

import "bytes"

// HostileBodies returns bodies that claim far more than they have: binaries, texts and arrays of
// 768 MiB, at each position of an array of 8.
func HostileBodies() (all [][]byte) {
	for at := range 8 {
		for _, claim := range [][]byte{
			{0xc6, 0x30, 0, 0, 0, 'x'}, {0xdb, 0x30, 0, 0, 0, 'x'}, {0xdd, 0x30, 0, 0, 0,
				0xc0}, {0xdf, 0x30, 0, 0, 0, 0xc0},
		} {
			body := append([]byte{0x98}, bytes.Repeat([]byte{0xc0}, at)...)
			all = append(all, append(body, claim...))
		}
	}
	many := []byte{0x97, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xdd, 0, 0, 0xff, 0} // endpoints
	many = append(many, bytes.Repeat([]byte{0xc0}, 0xff00)...)
	return append(all, many, append([]byte{0xdd, 0, 0, 0xff, 0}, bytes.Repeat([]byte{0x91}, 0xff00)...))
}
