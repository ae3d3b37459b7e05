// SPDX-License-Identifier: MIT

// Package mlx5test posts to queues of core/gpunic/mlx5 from Go: what device code does, but simple,
// single-threaded and in this process's memory. Tests check the emulated NIC against it, and device
// code against the emulated NIC.
//
//	p := mlx5test.NewPoster(queue)
//	p.Write(src, dst, 0)
//	err := p.Quiet(time.Second)
package mlx5test
