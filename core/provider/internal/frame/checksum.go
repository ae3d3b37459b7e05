// SPDX-License-Identifier: MIT

package frame

import (
	"fmt"
	"hash/crc32"

	"mori/core/fabric"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum adds b to the crc32c sum.
func Checksum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// ProtocolErr returns an error that wraps fabric.ErrProtocol.
func ProtocolErr(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, fabric.ErrProtocol)...)
}
