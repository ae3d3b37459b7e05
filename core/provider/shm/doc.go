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
// Addresses are names of abstract unix sockets, "@mori-1f3c". They are no files, and end with the
// process.
//
// # Which bytes travel where
//
//	handshake, shutdown, atomics, frames.go   the socket, in the protocol of package conn
//	reads and writes up to 64 KiB             copied in Submit, if nothing is queued before them
//	longer reads and writes                   copied by a domain's workers in slices (pool.go)
//	remote data of writes                     a ring in memory that both processes map (notify.go)
//	messages up to 16 KiB                     such a ring (outbox.go)
//	longer messages                           their addresses go through the ring; the receiver
//	                                          copies them once its receive is posted, and answers
//
// A ring costs no system call unless the reader of the target is parked. Messages whose receive is
// not posted stay in the ring, up to 256 KiB of them; the rest stays with the sender. A message of
// up to 16 KiB is in the ring when its op ends, and outlives the sender. A program that polls a
// completion queue empties the rings itself. A frame wakes one that does not. Where the sides do
// not reach each other's memory, messages go over the socket.
//
// Regions and local segments may be memory of GPUs if fabric.CapHMEM was asked for. Other processes
// cannot copy such memory: a region of it is never granted. Ops with device memory at either end go
// over the socket, through pinned host memory (package staging). Path reports how host memory
// moves.
//
// # Path
//
// An endpoint is a fabric.Prober. Before the first frame each side tries to read and to write 16
// bytes at an address that the other side named:
//
//	cma       both worked
//	memmove   the peer is this process
//	stream    payload takes the socket, which is slower, for the reason that Path gives: another pid
//	          namespace, another user, kernel.yama.ptrace_scope
//
// With ptrace_scope 1 the provider asks the kernel to admit the user's other processes
// (Options.KeepPtracer).
//
// # Access to regions
//
// The target checks a region's key. The initiator's provider shows it once and gets a grant:
// address, size and rights, against which it checks each op. MR.Close revokes the grants and
// returns when the initiators have ended their copies; a peer that does not answer within 5 s is
// disconnected. At its end, a connection first closes a fence in shared memory, which a peer passes
// before each slice. Then it waits for the slices in progress.
//
// Limits of this protection:
//
//   - The kernel lets any process of the same user read and write this process's memory. Keys
//     protect against mistakes and against peers on the stream path, not against a malicious
//     program of the same user.
//   - A peer that is stopped for more than 5 s exactly between the fence and its system call
//     finishes that one slice afterwards.
//   - A peer may write anything into the rings. Numbers are checked, and nonsense ends the
//     connection.
//
// # Errors of ops
//
//	ErrNoKey               no such region, wrong secret, or closed
//	ErrAccess, ErrRange    not granted, outside of the region
//	EFAULT                 a buffer is not mapped; the text says whose
//	ErrConnReset           the peer's process ended
//	ErrPerm                the kernel withdrew its permission
package shm
