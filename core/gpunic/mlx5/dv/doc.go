// SPDX-License-Identifier: MIT

// Package dv accesses a real ConnectX NIC: a mlx5.Cmd over mlx5dv's DevX commands.
//
//	cmd, err := dv.Open("mlx5_0")
//	dev, err := mlx5.Open(cmd)
//
// It has not been tested on a NIC. The commands' bytes are those that the emulated NIC accepts.
// docs/design/gpu-initiated.md lists what only a NIC can show. If libmlx5 or the NIC is missing,
// the error wraps errors.ErrUnsupported or the system's errno.
package dv
