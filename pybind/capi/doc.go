// SPDX-License-Identifier: MIT

// Package main is core/interchange as a C library, libmori_capi.so, for programs in C and C++ whose
// kernels drive NICs and proxies by themselves: those of native/examples, whose host.h declares it.
//
//	go build -buildmode=c-shared -o build/examples/libmori_capi.so ./pybind/capi
//
// It converts and calls, no more. Memory that functions get by address and length is the
// caller's and must be there until they return. A process that loads the library has a Go runtime
// in it, and must not fork without exec.
package main
