// SPDX-License-Identifier: MIT

// Package proxy runs the kernels of native/kernels/proxy on threads of the CPU: where there is no
// GPU, and for tests. A block has a few warps of four lanes, and each lane is a thread. Nothing
// here is fast.
//
// A call returns when its kernel has ended, which all of them do: their waits are bounded by the
// queue's limit. Memory is named by address and must be there; core/proxy makes the queues.
package proxy
