// SPDX-License-Identifier: MIT

// Package abi has the structs, enumerations and constants that Go shares with kernels.
//
//	args := abi.EPCountLocalArgs{Rows: rows, Indices: indices, Counts: counts, TopK: 8}
//	launch(abi.Bytes(&args))
//
// The headers below native/include/mori describe them, and tools/abigen writes their Go side. To
// share another struct, name it in the table of tools/abigen and run make generate. The name in Go
// is that of C++ with its namespace in front: EPOp is mori::ep::Op. Pointers of C++ are addresses
// in Go, as uint64.
//
// The package does not compile if Go lays out a struct differently from the C++ compiler. A test of
// tools/abigen fails if a header has changed since.
package abi
