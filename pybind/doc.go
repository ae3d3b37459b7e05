// SPDX-License-Identifier: MIT

// Package pybind is the flat surface that gopy turns into the Python extension
// mori._native._moricore. It holds no logic: each function converts its
// arguments, calls one layer down and converts the answer.
//
// # What may cross
//
// Arguments are int, uint64, uintptr, float64, bool and string; results are one
// such value, or one such value and an error. gopy skips anything else with a
// line in the build log and no error, so the stub generator refuses exported
// functions that do not fit. A bare error result leaks memory on each call: a
// function with nothing to return returns (int, error).
//
// # Names
//
// The function EngineNew is reached from Python as _moricore.pybind_EngineNew.
// Only python/mori/_core.py imports the extension.
//
// # Handles
//
// Python holds uint64 ids, never Go pointers. An id is not reused, so a stale
// one is answered with an error.
//
// # Errors
//
// An error's text is "E_CODE|message". The code is stable and _core.py maps it
// to an exception class. Each exported function that can fail recovers from
// panics, because a panic that reaches gopy ends the process.
//
// # Waiting and forking
//
// gopy releases the GIL around each call. A call that waits takes a timeout, and
// Python waits in slices of at most 100 ms so that Ctrl-C gets through. After
// fork the child has no scheduler threads: calls made there answer E_FORK.
package pybind
