// SPDX-License-Identifier: MIT

package pybind

import (
	"os"
	"runtime"

	"mori/core/config"
	"mori/core/doctor"
)

// version is the only definition of this project's version. make generate copies it to
// python/mori/_version.py.
const version = "0.1.0"

// Version returns the version of the extension, as in "1.2.3".
func Version() string { return version }

// extraProcs is the number of Ps of Go's scheduler beyond the machine's cores. Our goroutines copy
// and receive in long system calls, and Python's threads come and go through cgo. Each keeps its P
// until the scheduler's monitor retakes it, 20 µs to 10 ms later. Meanwhile a goroutine that it
// woke has no P to run on. 1000 x 4 KiB over shared memory on 2 busy cores takes 1.43 ms without
// extra Ps, 0.80 ms with 2, and 0.88 ms with 6.
const extraProcs = 6

func init() {
	if os.Getenv("GOMAXPROCS") == "" { // a value set by the user takes precedence
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + extraProcs)
	}
}

// Doctor returns what it finds on this host, and the path that each kind of peer would get, as
// JSON.
func Doctor() (text string, err error) {
	defer guard(&err)
	return toJSON(doctor.Examine())
}

// Environment returns the environment variables that mori reads as JSON: meaning, default and
// present value.
func Environment() (text string, err error) {
	defer guard(&err)
	return toJSON(config.Variables())
}

// UnknownVariables returns a message for each environment variable that has mori's prefix and that
// mori does not read, as a JSON list.
func UnknownVariables() (text string, err error) {
	defer guard(&err)
	return toJSON(append([]string{}, config.Unknown()...))
}
