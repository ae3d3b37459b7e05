// SPDX-License-Identifier: MIT

package rdm

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"mori/core/fabric"
)

// A handshake is the private data of a connection: handshakeMark, then the name of the dialing
// endpoint. The last byte of the mark is the version.
const handshakeMark = "rdm\x01"

// makeHandshake returns the handshake of an endpoint with this name. ErrTooSmall if it is longer
// than limit bytes.
func makeHandshake(name fabric.Addr, limit int) ([]byte, error) {
	handshake := append([]byte(handshakeMark), name...)
	if len(handshake) > limit {
		return nil, fmt.Errorf("name %q is too long to be sent to peers, limit is %d bytes: %w", name, limit-len(handshakeMark), fabric.ErrTooSmall)
	}
	return handshake, nil
}

// parseHandshake is the inverse of makeHandshake. The bytes are untrusted: any input is safe.
func parseHandshake(b []byte) (fabric.Addr, error) {
	name, ok := strings.CutPrefix(string(b), handshakeMark)
	if !ok {
		return "", fmt.Errorf("handshake of %d bytes is not of this version: %w", len(b), fabric.ErrProtocol)
	}
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	if name == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, odd) {
		return "", fmt.Errorf("a name of %d bytes that is not text: %w", len(name), fabric.ErrProtocol)
	}
	return fabric.Addr(name), nil
}
