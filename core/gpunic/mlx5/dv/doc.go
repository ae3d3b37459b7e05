// SPDX-License-Identifier: MIT

// Package dv is the way to a real ConnectX NIC: a mlx5.Cmd over mlx5dv's DevX commands.
//
//	cmd, err := dv.Open("mlx5_0")
//	dev, err := mlx5.Open(cmd)
//
// No test has run it on a NIC: the commands' bytes are those that the emulated NIC takes, and what
// only a NIC can settle is in docs/design/gpu-initiated.md. Where libmlx5 or the NIC is missing,
// the error wraps errors.ErrUnsupported or the system's errno.
package dv
