// SPDX-License-Identifier: MIT

package pybind

import (
	"context"
	"fmt"
	"time"

	"mori/core/fabric"
	"mori/core/interchange"
)

// putsTime bounds a run of BenchPuts.
const putsTime = 2 * time.Minute

// BenchPuts has threads of a GPU, or of the CPU, put count times nbytes to another's memory and compares every byte that arrived. path is
// "stores", "proxy:shm" and its like, or "emu0"; source and target are "cuda:0", "hip:0" or "cpu". With each, a thread waits for each put. With
// host, the host itself posts. It returns the nanoseconds of all by the count.
func BenchPuts(path string, source string, target string, nbytes uint64, count uint64, blocks int, threads int, each bool, host bool) (ns float64, err error) {
	defer guard(&err)
	if blocks < 1 || threads < 1 || blocks > 1<<16 || threads > 1<<10 {
		return 0, fmt.Errorf("puts by %d blocks of %d threads: %w", blocks, threads, fabric.ErrInvalid)
	}
	ctx, cancel := context.WithTimeout(context.Background(), putsTime)
	defer cancel()
	took, err := interchange.Measure(ctx, interchange.Puts{Path: path, GPUs: [2]string{source, target}, Bytes: nbytes, Count: count,
		Blocks: uint32(blocks), Threads: uint32(threads), Each: each, Host: host})
	return float64(took) / float64(count), err
}
