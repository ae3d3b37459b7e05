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
// Names and semantics are OpenSHMEM 1.6's. A World is one PE. A process may have several, each with
// its own member of a group.
//
// # Addresses
//
// A symmetric address is the address of the calling PE's copy. A function that names a PE means the
// same offset in that PE's copy. So exchange offsets within an allocation with other PEs, never
// addresses. Ptr returns the address at which this process can load and store another PE's copy.
// The local side of a transfer may be any memory of the process. The caller keeps it alive until
// Put or Get returns, or until Quiet for PutNbi and GetNbi.
//
// # Parts
//
// World has Init, queries and Finalize. It embeds the types with the other calls: rma.RMA,
// heap.Allocator, wait.Conditions, team.Teams, gpu.Kernels and local.Buffers. Each is in a package
// of shmem/internal with a doc.go.
//
// # How bytes move
//
// PEs with the same NodeID map each other's memory (memfd), so a put is a copy. All other PEs, and
// all PEs with DisableP2P, use the first provider of core/fabric that every PE has (package
// remote): shared memory within a host, RDMA or TCP between hosts. Describe reports the provider
// and the reason.
//
// NICs pin the heap when it is created or grows, and Init probes them. Only the bytes of puts and
// gets use the NIC. Operations after a fence, such as a signal after its bytes, are sent when the
// NIC has completed the earlier ones.
//
// On one host, a waiting PE is woken. Transports do not report what they wrote, so with a network a
// PE polls: after about an eighth of the time waited so far, at most a millisecond (package wait).
//
// # The heap
//
// A StaticHeap is one block, a VMMHeap one block that grows; with Isolation each allocation is a
// block. The kernel allocates pages on first use, so a heap may be larger than its used part. PEs
// compare their requests. If these differ, no PE gets memory, and the error names each PE's call
// (ErrMismatch). The next call works again.
//
// # GPUs
//
// With Config.Device the heap is on the PEs' GPUs, mapped between GPUs that reach each other. All
// calls work on it: the driver copies, and a kernel executes atomics (package access). The words of
// barriers stay in host memory. Kernels use the heap directly: ModuleInit fills in where the PEs
// are (native/include/mori/shmem), and BarrierOnStream synchronises streams. MallocHost allocates
// host memory in any case.
//
// # Errors
//
// errors.go lists the errors that calls wrap. Invalid arguments change no memory. Every wait ends,
// at the latest after Config.Timeout (ErrTimeout). When a PE dies or leaves, or a collective call
// times out, the World is broken: all waiting and later calls return an error that wraps the cause,
// a *bootstrap.RankError if a PE caused it. Only Finalize works then; it frees everything without
// waiting for other PEs.
//
// No call may be in progress when Finalize, or Free of memory that it uses, is called, because the
// memory is unmapped.
package shmem
