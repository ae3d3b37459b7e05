// SPDX-License-Identifier: MIT

// Package main is core/interchange as a C library, libmori_capi.so. It is for C and C++ programs
// whose kernels drive NICs and proxies directly, as in native/examples, whose host.h declares the
// API.
//
//	go build -buildmode=c-shared -o build/examples/libmori_capi.so ./pybind/capi
//
// The library only converts arguments and calls core/interchange. The caller owns memory passed by
// address and length, and keeps it valid until the function returns. A process that loads the
// library has a Go runtime, and must not fork without exec.
// in it, and must not fork without exec.
package main
