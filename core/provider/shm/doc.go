// SPDX-License-Identifier: MIT

// Package shm is the transport between processes of one host. The initiator copies the payload of
// reads and writes once, from one process's buffer to the other's, with process_vm_readv and
// process_vm_writev. Messages go through memory that both processes map.
//
//	p := shm.New(shm.Options{})
//	fab, err := p.Open(ctx, info)                  // info from p.GetInfo
//	lis, err := fab.Listen(ctx, info)              // info.Src "@name", or empty for a random name
//	ep.Connect(ctx, lis.Addr(), nil)               // ep from fab.Domain(...).Endpoint(...)
//
// Addresses are names of abstract unix sockets, "@mori-1f3c". They are not files, and disappear
// with the process.
//
// # Data paths
//
//	handshake, shutdown, atomics, frames.go   the socket, in the protocol of package conn
//	reads and writes up to 64 KiB             copied in Submit, if nothing is queued before them
//	longer reads and writes                   copied by a domain's workers in slices (pool.go)
//	remote data of writes                     a ring in memory that both processes map (notify.go)
//	messages up to 16 KiB                     such a ring (outbox.go)
//	longer messages                           their addresses go through the ring; the receiver
//	                                          copies them once its receive is posted, and answers
//
// Writing to a ring needs no system call unless the target's reader is parked. Messages without a
// posted receive stay in the ring, up to 256 KiB of them; further messages stay with the sender.
// The op of a message of up to 16 KiB ends once the message is in the ring, where it survives the
// sender's exit. A program that polls a completion queue empties the rings itself. A program that
// does not is woken by a frame. If the two sides cannot access each other's memory, messages use
// the socket.
//
// Regions and local segments may be GPU memory if the program asked for fabric.CapHMEM. Other
// processes cannot copy such memory, so regions of it are never granted. Ops with device memory at
// either end use the socket, through pinned host memory (package staging). Path reports how host
// memory moves.
//
// # Path
//
// An endpoint is a fabric.Prober. Before the first frame, each side tries to read and to write 16
// bytes at an address that the other side named:
//
//	cma       both worked
//	memmove   the peer is this process
//	stream    payload uses the slower socket, for the reason that Path returns: another pid
//	          namespace, another user, kernel.yama.ptrace_scope
//
// With ptrace_scope 1, the provider asks the kernel to allow the user's other processes to access
// this process (Options.KeepPtracer).
//
// # Access to regions
//
// The initiator's provider shows a region's key once. The target checks it and answers with a
// grant: address, size and rights. The initiator checks each op against the grant. MR.Close revokes
// the grants and returns when the initiators have ended their copies; a peer that does not answer
// within 5 s is disconnected. When a connection ends, it first closes a fence in shared memory,
// which a peer checks before each slice. Then it waits for the slices in progress.
//
// Limits of this protection:
//
//   - The kernel lets any process of the same user read and write this process's memory. Keys
//     protect against mistakes and against peers on the stream path, not against a malicious
//     program of the same user.
//   - A peer that is stopped for more than 5 s, exactly between the fence and its system call,
//     still copies that one slice when it continues.
//   - A peer may write anything into the rings. Numbers are checked, and invalid ones end the
//     connection.
//
// # Errors of ops
//
//	ErrNoKey               unknown region, wrong secret, or closed region
//	ErrAccess, ErrRange    right not granted, outside the region
//	EFAULT                 a buffer is not mapped; the text says whose buffer
//	ErrConnReset           the peer's process has ended
//	ErrPerm                the kernel withdrew its permission
package shm
