// SPDX-License-Identifier: MIT

// Package emulate compiles libraries whose devices are emulated, for tests, and has a process and
// its children use them in place of those of vendors.
//
//	library := emulate.Library{
//		What: "emulated GPU", File: "libcuda.so.1", Folder: "MORI_EMULATED_GPU",
//		Script: "native/gpu/testdata/emulator.sh", Sources: []string{"native/gpu/testdata"},
//		Compilers: []emulate.Compiler{emulate.CXX},
//	}
//	err := library.Start() // nil: libcuda.so.1 is this one from now on, here and in children
//
// [Library.Start] comes before the first use of the library, in TestMain. Its error is the reason
// why it is not available, for which tests skip; a library that is there to be compiled and does
// not compile ends the process.
//
// Of one name there is one library in a process, which stays. Nothing here is safe for concurrent
// use.
package emulate
