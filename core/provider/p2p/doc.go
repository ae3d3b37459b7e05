// SPDX-License-Identifier: MIT

// Package p2p is the transport within a host for ops with a GPU's memory at one end at least. GPUs
// copy the payload of reads and writes over NVLink, xGMI or PCIe, directly between the memories of
// the two processes.
//
//	p := p2p.New(p2p.Options{})
//	infos, err := p.GetInfo(ctx, "", "", hints)  // ErrNoData, and why, where there is no GPU
//	fab, err := p.Open(ctx, infos[0])
//	mr, err := dom.Reg(fabric.Buffer{Addr: a, Len: n, Kind: fabric.MemCUDA, Device: 0}, access, key)
//	op.Seg = fabric.Seg{Addr: a, Len: n, MR: mr.Desc()}
//
// Addresses are names of abstract unix sockets, as those of package shm. Handshake, messages,
// atomics, remote data and shutdown go over the socket, in the protocol of package conn.
//
// # Where a block's bytes are posted
//
//	dataPath.RMA      takes a read or write over from package conn        path.go
//	dataPath.start    finds the grant of the remote region, checks the op
//	payload.reach     the lane and the remote region's address there      payload.go
//	payload.list      local and remote pieces as a list of copies         list.go
//	engine.start      starts the copy, or queues it behind others         engine.go
//	copyJob.start     posts it: StartBlocks or Start of device.Copier     lane.go
//	engine.run        polls the copy
//	pendingOp.copied  completes the op                                    pending.go
//
// An op to host memory of another process takes another way: orders.start sends the list to the
// peer (orders.go), and the peer's server copies (serve.go).
//
// # Which device copies
//
//	local  remote               copies                  the other end is reached by
//	GPU    GPU                  initiator's device      an IPC handle; peer access inside one process
//	host   GPU                  remote memory's device  an IPC handle, and a pin of the local region
//	GPU    host, other process  the target, by order    an IPC handle, and a pin of its own
//	GPU    host, this process   initiator's device      a pin of the remote region
//	host   host                 the stream
//
// In these cases the stream carries the payload through pinned memory, and Path and one line in the
// log say why:
//
//   - memory that its owner cannot export: virtual and pool memory
//   - devices that do not reach each other
//   - host memory that cannot be pinned or belongs to no registered region
//   - an op from several regions to another process's host memory
//
// Lists of pieces shorter than 8 MiB on average, and single pieces shorter than 1 MiB, are one
// launch of the kernel mori_io_copy_blocks, with Options.Blocks or MORI_P2P_BLOCKS blocks, else
// with a number of blocks that depends on the bytes. Longer pieces go to the copy engines
// (device.Copier).
//
// Handles are opened, memory is pinned and kernels are loaded when an op first needs them, off the
// caller's goroutine, and kept until the region closes. Lists of 512 segments and more are written
// on a goroutine of their own. An op of fabric.Blocks needs none: the GPU gets a copy of its
// offsets.
//
// # Access to regions
//
// The target checks a region's key when the initiator requests a grant (package grant). The grant
// has the address, the handle and the rights. The initiator's provider checks each op against it.
// An order carries the key, and the target checks all of it. MR.Close revokes grants. It returns
// when the peer's copies under them have ended and its handle is closed, or after 5 s, when the
// peer is disconnected.
//
// Each process maps a fence of the other, a page of shared memory, and passes it before each copy.
// A connection that ends closes its fence first. Then it waits for the copies in progress or for
// the peer's death. The drivers' handles cannot keep out a malicious process of the same user.
//
// If a device does not end its copies within 5 s of the end of a connection, the ops end with
// ErrTimeout. What they touch stays mapped and registered, so MR.Close returns ErrTimeout.
//
// # Completion
//
// One goroutine of each domain polls the copies. It spins around the time at which one should end,
// judged by the device's recent speed, sleeps until then, and is parked when there is no copy. An
// op succeeds when its bytes are visible at the target.
//
// # Errors of ops
//
//	ErrNoKey, ErrAccess, ErrRange, ErrConnReset   as elsewhere
//	ErrNoMR           the descriptor of a local segment names no region
//	ENOMEM            the device has no memory left
//	ErrNotSupported   the devices cannot access each other's memory, or have no kernel
//	EIO               the device serves this process no more
//
// The text has the driver's words.
package p2p
