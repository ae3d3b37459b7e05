// SPDX-License-Identifier: MIT

// Package shmem is OpenSHMEM-style symmetric memory between processing elements (PEs), in host
// memory or on GPUs.
//
//	// or JoinFile, JoinLaunched, Local
//	group, err := bootstrap.Join(ctx, id, rank, size, bootstrap.Options{})
//	cfg, err := shmem.ConfigFromEnv()
//	w, err := shmem.Init(ctx, group, cfg)                // collective
//	at, err := w.Malloc(1 << 20)                         // collective: the address of this PE's copy
//	err = w.Put(at, memory.AddrOf(bytes), n, right)      // to the copy of PE right
//	err = w.BarrierAll()
//	err = w.Finalize(ctx)                                // collective; closes the group, too
//
// Names and meanings are OpenSHMEM 1.6's. A World is one PE; a process may have several, each with
// a group member of its own.
//
// # Addresses
//
// A symmetric address is that of the calling PE's own copy, and each function that names a PE means
// the same place in that PE's copy. So an address is not to be given to other PEs; an offset from
// an allocation's beginning is. Ptr returns where this process can load and store the copy of
// another PE. The local side of a transfer may be any memory of the process, which the caller keeps
// alive until Put or Get returned, or until Quiet after PutNbi and GetNbi.
//
// # Parts
//
// World has Init, queries and Finalize. It embeds the parts that have the other calls: rma.RMA,
// heap.Allocator, wait.Conditions, team.Teams, gpu.Kernels and local.Buffers, each in a package of
// shmem/internal with a doc.go.
//
// # How bytes move
//
// PEs with the same NodeID map each other's memory (memfd): a put is a copy. All others, and all
// with DisableP2P, are reached through the first provider of core/fabric that all PEs have (package
// remote): shared memory between processes of one host, RDMA or TCP between hosts. Describe says
// which, and why.
//
// NICs pin the heap as it is made or grows, and Init tries them out. Only the bytes of puts and
// gets go by the NIC. What waits behind a fence, as a signal behind its bytes, is sent when the NIC
// has completed those.
//
// On one host a PE that waits is woken. No transport reports what it has written, so with a network
// a PE looks again, each time after about an eighth of the wait so far, and after a millisecond at
// most (package wait).
//
// # The heap
//
// StaticHeap is one block, VMMHeap one that grows, Isolation a block for each allocation. Pages are
// taken when they are touched, so a heap may be larger than what is used of it. PEs compare what
// they ask for: if they differ, nobody gets anything, and the error, on all PEs, says who called
// what (ErrMismatch). The next call is good again.
//
// # GPUs
//
// With Config.Device the heap is on the PEs' GPUs, and mapped where these reach each other. All
// calls work on it, by copies of the driver and a kernel for atomics (package access); the words of
// barriers stay in host memory. Kernels use it by themselves: ModuleInit fills in where the PEs are
// (native/include/mori/shmem), BarrierOnStream has streams wait for each other. MallocHost gives
// host memory all the same.
//
// # Errors
//
// errors.go lists what errors wrap. Bad arguments touch nothing. Every wait ends, at the latest
// after Config.Timeout (ErrTimeout). When a PE dies or leaves, or a collective call times out, the
// World is broken: every call that waits and all later ones return an error that wraps the cause, a
// *bootstrap.RankError if a PE is it. What remains is Finalize, which then frees without waiting
// for anybody.
//
// No call may be on its way when Finalize or Free of what it touches is called: the memory goes
// away under it.
package shmem
