// SPDX-License-Identifier: MIT

// Package mlx5 wraps the DevX interface of libmlx5 (mlx5dv.h): commands to a ConnectX NIC's
// firmware, registered memory, and doorbells. Load opens the library at the first call. If it is
// missing, the error names it and wraps errors.ErrUnsupported. Building the package does not need
// the library's headers: abi.h declares what it uses.
//
//	if err := mlx5.Load(); err != nil { ... }
//	c, err := mlx5.Open("mlx5_0")
//	err = c.General(in, out)
//
// Errors wrap the system's errno. If the firmware refused a command, its reply is in out and the
// errno is EREMOTEIO. Handles are numbers. The caller closes each handle once, and a Context last.
// core/gpunic/mlx5/dv implements mlx5.Cmd with this package.
package mlx5
