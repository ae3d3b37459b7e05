// SPDX-License-Identifier: MIT

// Package pybind is the flat API that gopy turns into the Python extension mori._native._moricore.
// It contains no logic: each function converts its arguments, calls one layer down and converts the
// result.
//
// # Types
//
// Arguments are int, uint64, uintptr, float64, bool and string. The result is one such value, or
// one such value and an error. gopy skips any other function with a line in the build log and no
// error, so the stub generator refuses exported functions that do not fit. A bare error result
// leaks memory on each call: a function with nothing to return returns (int, error).
//
// # Names
//
// Python calls the function EngineNew as _moricore.pybind_EngineNew. Only python/mori/_core.py
// imports the extension.
//
// # Handles
//
// Python holds uint64 ids, never Go pointers. Ids are not reused, so a stale id gives an error.
//
// # Errors
//
// An error's text is "E_CODE|message". The code is stable, and _core.py maps it to an exception
// class. Each exported function that can fail recovers from panics, because a panic that reaches
// gopy ends the process.
//
// # Waiting and forking
//
// gopy releases the GIL around each call. A call that blocks takes a timeout, and Python waits in
// slices of at most 100 ms so that Ctrl-C works. A forked child has no Go scheduler threads, so
// calls there fail with E_FORK.
package pybind
