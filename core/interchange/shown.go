// SPDX-License-Identifier: MIT

package interchange

import (
	"fmt"

	"mori/core/decode"
	"mori/core/fabric"
)

// readShown decodes the peer's description of its memory. It travels over any channel, so it may
// contain anything.
func readShown(shown []byte, to any) error {
	if err := decode.JSON(shown, to); err != nil {
		return fmt.Errorf("read the peer's memory: %w: %w", err, fabric.ErrInvalid)
	}
	return nil
}
