// SPDX-License-Identifier: MIT

// Package vm copies memory between processes (process_vm_readv and process_vm_writev), and reports
// whether the kernel allows it (ptrace scope).
package vm
