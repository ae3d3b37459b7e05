// SPDX-License-Identifier: MIT

package nic

// #cgo CXXFLAGS: -std=c++17 -O2 -Wall -Wextra -Werror -fvisibility=hidden -I${SRCDIR}/../include
// #cgo LDFLAGS: -static-libstdc++ -static-libgcc
// #include <stdlib.h>
// #include "run.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// A Grid has Blocks blocks of Threads threads, in warps of Lanes.
type Grid struct{ Blocks, Threads uint32 }

// WarpThreads is the size of a warp on the CPU. MostThreads is the most threads that Run starts;
// each is a system thread.
const (
	WarpThreads = 4
	MostThreads = 256
)

// Run runs a kernel on threads of this process and returns when all have ended. The error is about
// the call; the outcome says how the work ended.
func Run(g Grid, a Args) (Outcome, error) {
	if g.Blocks < 1 || g.Threads < 1 || g.Threads%WarpThreads != 0 || g.Threads > MostThreads || g.Blocks > MostThreads/g.Threads {
		return Outcome{}, fmt.Errorf("run %s on %d blocks of %d threads, want warps of %d and %d threads at most: %w",
			a.Kernel(), g.Blocks, g.Threads, WarpThreads, MostThreads, ErrGrid)
	}
	name := C.CString(a.Kernel())
	defer C.free(unsafe.Pointer(name))
	args := a.Append(nil)
	var out Outcome
	rc := C.mori_nic_run(name, C.uint32_t(g.Blocks), C.uint32_t(g.Threads), unsafe.Pointer(&args[0]), C.uint64_t(len(args)), unsafe.Pointer(&out.NICOutcome))
	switch rc {
	case C.MORI_NIC_NO_KERNEL:
		return Outcome{}, fmt.Errorf("run %s: no such kernel", a.Kernel())
	case C.MORI_NIC_ARGS:
		return Outcome{}, fmt.Errorf("run %s: it does not take %d bytes of arguments", a.Kernel(), len(args))
	}
	return out, nil
}
