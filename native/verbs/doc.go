// SPDX-License-Identifier: MIT

// Package verbs is the door to libibverbs: RDMA devices, their regions, reliable connected queue
// pairs and completion queues.
//
//	if err := verbs.Load(); err != nil { ... }   // errors.ErrUnsupported, with what to install
//	devices, err := verbs.Devices()              // none is no error
//	ctx, err := verbs.Open(devices[0].Name)
//	pd, err := ctx.AllocPD()
//	mr, keys, err := pd.RegMR(addr, length, addr, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
//	cq, err := ctx.NewCQ(1024, 0, 0)
//	qp, num, got, err := pd.NewQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, SendWR: 512, SendSGE: 4})
//	// qp.Init, RTR with the peer's number and address, RTS; then PostSend, and Poll of the queue
//
// Its words are those of libibverbs. Objects and addresses are numbers, 0 is none, and a batch of
// work requests or completions crosses into C in one call that allocates nothing. It knows nothing
// of core/fabric.
//
// # Owning
//
// Who makes an object closes it, once, and what was made of it first: regions and queue pairs, then
// their queues and domain, then the context, else Close answers EBUSY. Using an object after its
// Close is a bug that nothing catches. All calls may be made from many goroutines at once, but for
// Close, which comes after all others of the object. Memory belongs to the caller, must not move,
// and stays mapped for as long as it is registered.
//
// # Errors
//
// They name the act and wrap the errno: EPERM and EACCES (the device file may not be opened),
// ENODEV, ENOMEM (of RegMR: the limit of locked memory; of PostSend and PostRecv: the queue is
// full), EINVAL, EBUSY. What a library or device does not have wraps errors.ErrUnsupported. What
// became of a work request is in its [WC], not in an error.
//
// # Building
//
// Nothing is linked with libibverbs, and its headers are not needed: abi.h declares the part of its
// binary interface that this package uses. Load opens libibverbs.so.1 when it is first called, with
// the versions of its symbols; newer symbols are optional.
//
// # Forks
//
// ibv_fork_init is not called: it makes each registration a madvise of whole pages and hides the
// memory from children. Go starts processes with vfork, where parents do not run and write
// meanwhile; and for the forks of Python, Linux 5.12 and newer copy pinned pages at the fork. On an
// older kernel a program that forks and runs on sets IBV_FORK_SAFE=1, which the library reads
// itself.
package verbs
