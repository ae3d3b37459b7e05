// SPDX-License-Identifier: MIT

// Package formattest has what the tests of queue formats share.
package formattest

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Unhex returns the bytes of hexadecimal digits with spaces between them. It panics on other text.
func Unhex(digits string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		panic(fmt.Sprintf("decode %q: %v", digits, err))
	}
	return b
}
