// SPDX-License-Identifier: MIT

package interchange

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/mlx5"
)

// realNIC opens a NIC of this host by its name.
func realNIC(name string) (mlx5.Cmd, error) {
	return nil, fmt.Errorf("open %s: this build has no way to a NIC's own queues but the emulated one, emu0: %w", name, fabric.ErrNotSupported)
}
