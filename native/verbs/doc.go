// SPDX-License-Identifier: MIT

// Package verbs wraps libibverbs: RDMA devices, memory regions, reliable connected queue pairs and
// completion queues.
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
// Its terms are those of libibverbs. Objects and addresses are numbers, and 0 is no object. One
// call passes a batch of work requests or completions to C, and allocates nothing. The package does
// not depend on core/fabric.
//
// # Ownership
//
// The caller closes each object once, children first: regions and queue pairs, then completion
// queues and the protection domain, then the context. Otherwise Close returns EBUSY. Using an
// object after its Close is a bug that nothing detects. All calls are safe for concurrent use,
// except Close, which must come after all other calls on the object. The caller owns the memory,
// which must not move, and must stay mapped as long as it is registered.
//
// # Errors
//
// Errors name the action and wrap the errno: EPERM and EACCES (the device file may not be opened),
// ENODEV, ENOMEM (RegMR: the limit of locked memory; PostSend and PostRecv: the queue is full),
// EINVAL, EBUSY. If the library or device does not support something, the error wraps
// errors.ErrUnsupported. The result of a work request is in its [WC], not in an error.
//
// # Building
//
// The package does not link against libibverbs and does not need its headers: abi.h declares the
// part of its binary interface that this package uses. Load opens libibverbs.so.1 at the first
// call, with versioned symbols; newer symbols are optional.
//
// # Forks
//
// The package does not call ibv_fork_init, which makes each registration a madvise of whole pages
// and hides the memory from children. Go starts processes with vfork, during which the parent does
// not run and write. For Python's forks, Linux 5.12 and newer copy pinned pages at the fork. On an
// older kernel, a program that continues after a fork must set IBV_FORK_SAFE=1, which the library
// reads itself.
package verbs
