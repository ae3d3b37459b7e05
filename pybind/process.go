// SPDX-License-Identifier: MIT

package pybind

import (
	"os"
	"runtime"

	"mori/core/config"
	"mori/core/doctor"
)

// version is the one place where the version of this project is written;
// make generate copies it to python/mori/_version.py.
const version = "0.1.0"

// Version returns the version of the extension, as in "1.2.3".
func Version() string { return version }

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

// Doctor returns what is on this host, and which path each kind of peer would get, as JSON.
func Doctor() (text string, err error) {
	defer guard(&err)
	return toJSON(doctor.Examine())
}

// Environment returns the environment variables that mori reads, with meaning, default and present
// value, as JSON.
func Environment() (text string, err error) {
	defer guard(&err)
	return toJSON(config.Variables())
}

// UnknownVariables returns a message for each variable of the environment that has mori's prefix
// and that nothing reads, as a JSON list.
func UnknownVariables() (text string, err error) {
	defer guard(&err)
	return toJSON(append([]string{}, config.Unknown()...))
}
