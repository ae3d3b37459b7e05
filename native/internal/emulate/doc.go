// SPDX-License-Identifier: MIT

// Package emulate compiles libraries whose devices are emulated, for tests, and has a process and
// its children use them in place of those of vendors.
//
//	library := emulate.Library{
//		What: "emulated GPU", File: "libcuda.so.1", Folder: "MORI_EMULATED_GPU",
//		Script: "native/gpu/testdata/emulator.sh", Sources: []string{"native/gpu/testdata"}, Compilers: []emulate.Compiler{emulate.CXX},
//	}
//	err := library.Start() // nil: whoever opens libcuda.so.1 from now on, here or in a child, gets this one
//
// [Library.Start] comes before the first use of the library, in TestMain. Its error is the reason
// for which there is none, and tests skip for it; a library that is there to be compiled and does
// not compile ends the process.
//
// Of one name there is one library in a process, which stays. Nothing here is safe for concurrent
// use.
package emulate
