// SPDX-License-Identifier: MIT

package interchange

import (
	"fmt"

	"mori/core/decode"
	"mori/core/fabric"
)

// readShown decodes what the peer says of its memory. A program carries it over by any means, so
// the bytes may be anyone's.
func readShown(shown []byte, to any) error {
	if err := decode.JSON(shown, to); err != nil {
		return fmt.Errorf("read the peer's memory: %w: %w", err, fabric.ErrInvalid)
	}
	return nil
}
