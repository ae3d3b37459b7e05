// SPDX-License-Identifier: MIT

// Package shm is the transport between processes of one host: the payload of reads and writes goes straight from one
// process's buffer to the other's with process_vm_readv and process_vm_writev, one copy, by the side that asked; messages go through
// memory that both map.
//
//	p := shm.New(shm.Options{})
//	fab, err := p.Open(ctx, info)                  // info from p.GetInfo
//	lis, err := fab.Listen(ctx, info)              // info.Src "@name", or empty for a random name
//	ep.Connect(ctx, lis.Addr(), nil)               // ep from fab.Domain(...).Endpoint(...)
//
// Addresses are names of abstract unix sockets, "@mori-1f3c": no file, and gone with the process.
//
// # What goes where
//
// Handshake, shutdown, atomics, and the frames of this package (frames.go) go over the socket, in the protocol of package conn. Remote data
// of writes goes through a ring in memory that both processes map (ring.go); it costs no system call unless the target's reader is
// parked. Ops up to 64 KiB are copied inside Submit when nothing is queued before them, larger ones by a domain's
// workers in slices (pool.go).
//
// Messages go through such rings where both sides reach each other's memory (messagering.go), else over the socket. One of up to 16 KiB is
// in the ring when its op ends, where it outlives the sender; of a larger one the ring has the addresses, from which the receiver gets it once
// its receive is posted, and then answers. A message whose receive is not posted stays in the ring, 256 KiB of them, and
// the rest with the sender. Who looks into a completion queue empties the rings, without a system call while both sides
// look; who does not is woken by a frame.
//
// Regions and local segments may be memory of GPUs where fabric.CapHMEM was asked for. No process reaches that of another: a region of device
// memory is never lent, and ops that have some on either side go over the socket, through pinned host memory (package staging). Path says
// how host memory moves.
//
// # Path
//
// An endpoint is a fabric.Prober. Before the first frame each side tries to read and to write 16 bytes that the other promised
// to have at an address; "cma" means that this worked, "memmove" that the peer is this very process, and "stream" that payload takes the
// socket, more slowly, with the reason: another pid namespace, another user, kernel.yama.ptrace_scope. With scope 1 the provider
// asks the kernel to let the user's other processes in (Options.KeepPtracer).
//
// # Who may touch what
//
// A region's key is checked where the region is. The initiator's provider shows it once and gets a loan: address, size and rights,
// against which it holds each op. MR.Close calls the loans in and returns when the initiators have ended their copies; an initiator
// that does not answer within 5 s is disconnected. A connection that ends, in whatever way, first shuts a fence in
// shared memory, which a peer passes before each slice, then waits for slices under way.
//
// What remains: the kernel lets any process of the same user read and write this one's memory, mori or not. Keys
// protect against mistakes and against peers on the stream path, not against a program of the same user that means
// harm. And a peer that is stopped for more than 5 s exactly between passing the fence and its system call
// finishes that one slice afterwards. What a peer writes into the rings is believed as far as what it sends: numbers are checked, and
// nonsense ends the connection.
//
// # Errors of ops
//
// ErrNoKey: no such region, wrong secret, or closed. ErrAccess, ErrRange: not granted, outside. EFAULT: a buffer is not mapped; the text
// tells whose. ErrConnReset: the peer's process is gone. ErrPerm: the kernel withdrew its permission.
package shm
