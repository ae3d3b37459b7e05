// SPDX-License-Identifier: MIT

package pybind

import (
	"os"
	"runtime"
)

// extraProcs are processors of Go's scheduler beyond the machine's. Our goroutines copy and receive
// in long system calls, and Python's threads come and go through cgo; each keeps its processor
// until the scheduler's monitor takes it away, 20 µs to 10 ms later, and meanwhile the goroutine
// that it woke has none to run on. 1000 x 4 KiB over shared memory on 2 busy cores: 1.43 ms
// without, 0.80 ms with 2 more, 0.88 with 6 more.
const extraProcs = 6

func init() {
	if os.Getenv("GOMAXPROCS") == "" { // what the user says counts
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + extraProcs)
	}
}
