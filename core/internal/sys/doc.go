// SPDX-License-Identifier: MIT

// Package sys is the kernel's ABI as mori uses it. In core, only this package and those below it
// import package unsafe.
//
// Memory is named by address (uint64), since device memory and other processes' memory have no
// slice. [Bytes] turns an address of this process into a slice, [AddrOf] does the reverse. Nothing
// here keeps memory alive: an address is good only while its owner holds the buffer, and [AddrOf]
// of a Go slice makes that slice escape to the heap, which does not move.
//
// Lists of addresses are slices of [Iovec]. An Iovec holds integers and no pointers on purpose:
// half of them belong to other processes, and the garbage collector must not follow those.
//
// Each other facility of the kernel is a package below this one: futex, memfd, pages, sock, thread
// and vm.
//
// Errors are the kernel's own syscall.Errno, bare or wrapped with what was tried. Calls are
// repeated after EINTR. File descriptors that are made here are close-on-exec.
package sys
