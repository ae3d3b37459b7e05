// SPDX-License-Identifier: MIT

// Package proxy runs the kernels of native/kernels/proxy on CPU threads, for tests and for machines
// without a GPU. A block has a few warps of four lanes, and each lane is a thread. It is slow.
//
// A call returns when its kernel has ended. The queue's limit bounds all waits, so every kernel
// ends. Memory is named by address and must be valid; core/proxy makes the queues.
package proxy
