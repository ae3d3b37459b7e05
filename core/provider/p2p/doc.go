// SPDX-License-Identifier: MIT

// Package p2p is the transport within a host where a GPU's memory is at one end at least: GPUs copy the payload of reads and writes over NVLink,
// xGMI or PCIe, straight between the two processes' memories.
//
//	p := p2p.New(p2p.Options{})
//	infos, err := p.GetInfo(ctx, "", "", hints)  // ErrNoData, and why, where there is no GPU
//	fab, err := p.Open(ctx, infos[0])
//	mr, err := dom.Reg(fabric.Buffer{Addr: a, Len: n, Kind: fabric.MemCUDA, Device: 0}, access, key)
//	op.Seg = fabric.Seg{Addr: a, Len: n, MR: mr.Desc()}
//
// Addresses are names of abstract unix sockets, as those of package shm. Handshake, messages, atomics, remote data and shutdown
// go over the socket, in the protocol of package conn.
//
// # Who copies
//
//	local   remote                     copies                     the other end is reached by
//	GPU     GPU                        the initiator's device     an IPC handle; peer access inside one process
//	host    GPU                        the remote memory's device an IPC handle, and a pin of the local region
//	GPU     host, of another process   the target, by order       an IPC handle of the local region, and a pin of its own
//	GPU     host, of this process      the initiator's device     a pin of the remote region
//	host    host                       the stream
//
// Where that cannot be, the stream carries the payload, which stages it through pinned memory: memory that its owner cannot export
// (virtual and pool memory), devices that do not reach each other, host memory that cannot be pinned or is of no registered region, an
// op from several regions to another process's host memory. Path and one line in the log say why.
//
// Lists of pieces shorter than 8 MiB on average, and single ones shorter than 1 MiB, are one launch of the kernel mori_io_copy_blocks, with Options.Blocks or MORI_P2P_BLOCKS
// blocks or as many as the bytes are worth; longer ones go to the copy engines (device.Copier). Handles are opened, memory is pinned and
// kernels are loaded when an op first needs it, off the caller's goroutine, and kept until the region closes. Lists of 512 segments and more are
// written on a goroutine of their own. An op of fabric.Blocks needs none: the GPU gets a copy of its offsets.
//
// # Who may touch what
//
// A region's key is checked where the region is. The initiator's provider shows it once and gets a loan: where the region is, its handle and
// rights, against which it holds each op. An order carries the key, and the target checks all of it. MR.Close calls loans in: it returns
// when the peer's copies under it have ended and its handle is closed, or after 5 s, when the peer is disconnected. A connection that ends
// first shuts a fence in shared memory, which a peer passes before each copy, then waits for the copies under way or for
// the peer's death. A process of the same user that means harm is not kept out, by nature of the drivers' handles.
//
// A device that does not end its copies within 5 s of the end of a connection is given up on: the ops end with ErrTimeout, and what
// they touch stays mapped and registered, so that MR.Close of it answers ErrTimeout.
//
// # Completion
//
// One goroutine of each domain looks after the copies under way. It spins around the time at which one is expected to end, judged by the
// device's speed lately, sleeps until then, and is parked when there is none. An op is successful when its bytes are visible at the target.
//
// # Errors of ops
//
// ErrNoKey, ErrAccess, ErrRange, ErrConnReset as elsewhere. ErrNoMR: the descriptor of a local segment names no region. ENOMEM: the device has no
// memory left. ErrNotSupported: no way between the devices, or no kernel for them. EIO: the device serves this process no more.
// The text has the driver's words.
package p2p
