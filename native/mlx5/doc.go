// SPDX-License-Identifier: MIT

// Package mlx5 is the DevX door of libmlx5 (mlx5dv.h): commands to a ConnectX NIC's firmware,
// memory that it knows, and its doorbells. Load opens the library when it is first called; where it
// is missing the error names it and wraps errors.ErrUnsupported. The package is compiled without
// the library's headers: abi.h declares what it uses.
//
//	if err := mlx5.Load(); err != nil { ... }
//	c, err := mlx5.Open("mlx5_0")
//	err = c.General(in, out)
//
// Calls answer with an error that wraps the system's errno. Where the firmware refused a command,
// its answer is in out and the errno is EREMOTEIO. Handles are plain numbers: who made one closes
// it, once, and closes a Context last. core/gpunic/mlx5/dv makes a mlx5.Cmd of this.
package mlx5
