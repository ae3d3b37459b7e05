// SPDX-License-Identifier: MIT

// Package sys wraps the kernel interfaces that mori uses. In core, only this package and its
// subpackages import package unsafe.
//
// Memory is named by address (uint64), since device memory and other processes' memory have no
// slice. [Bytes] turns an address of this process into a slice, [AddrOf] does the reverse. Nothing
// here keeps memory alive: an address is valid only while its owner holds the buffer. [AddrOf]
// makes a Go slice escape to the heap, where it does not move.
//
// Lists of addresses are slices of [Iovec]. An Iovec deliberately holds integers and no pointers.
// Half of them belong to other processes, and the garbage collector must not follow those.
//
// Each other kernel facility has a subpackage: futex, memfd, pages, sock, thread and vm.
//
// Errors are the kernel's syscall.Errno, unwrapped or wrapped with what was tried. Calls are
// repeated after EINTR. File descriptors that this package opens are close-on-exec.
package sys
