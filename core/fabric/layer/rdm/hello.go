// SPDX-License-Identifier: MIT

package rdm

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"mori/core/fabric"
)

// A hello is the private data of a connection: helloMark, then the name of who asks. The last byte
// of the mark is the version.
const helloMark = "rdm\x01"

// makeHello is the hello of an endpoint of this name. ErrTooSmall if it does not fit into limit
// bytes.
func makeHello(name fabric.Addr, limit int) ([]byte, error) {
	hello := append([]byte(helloMark), name...)
	if len(hello) > limit {
		return nil, fmt.Errorf("name %q is too long to be sent to peers, limit is %d bytes: %w", name, limit-len(helloMark), fabric.ErrTooSmall)
	}
	return hello, nil
}

// parseHello is the inverse of makeHello. The bytes come from outside: any input is answered, none
// trusted.
func parseHello(b []byte) (fabric.Addr, error) {
	name, ok := strings.CutPrefix(string(b), helloMark)
	if !ok {
		return "", fmt.Errorf("handshake of %d bytes is not of this version: %w", len(b), fabric.ErrProtocol)
	}
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	if name == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, odd) {
		return "", fmt.Errorf("a name of %d bytes that is not text: %w", len(name), fabric.ErrProtocol)
	}
	return fabric.Addr(name), nil
}
