// SPDX-License-Identifier: MIT

// Package device is the GPU as Go sees it, of NVIDIA and AMD alike: memory, streams, events,
// modules, and what other devices and processes reach.
//
// # First steps
//
//	devices, err := device.Devices() // errors.ErrUnsupported: this machine has none, err says why
//	d := devices[0]
//	m, err := d.Alloc(1 << 20)
//	s, err := d.NewStream(device.Normal)
//	err = s.Set(m.Addr(), 0, m.Bytes())
//	err = s.Wait(ctx)
//
// The drivers are opened when they are first asked for (package native/gpu). Devices and Lookup
// make nothing on a device; the first call that works on one makes its context there, some hundred
// MiB on CUDA, shared with PyTorch and kept until the process ends.
//
// A [Copier] copies lists of segments, thousands of small ones by one launch. A [Staging] is pinned
// host memory for what has to leave by a socket, shared and bounded.
//
// # Ownership
//
// Addresses and handles are numbers; device memory has no slice. What a New, Alloc, Load, Open,
// Register or Map gives belongs to the caller, who closes it: once, later Closes are nil. Nothing
// is closed by the garbage collector, since memory that is known by its address may be in use when
// its object is not. [Live] lists what is open. Streams, events and modules of others, such as
// PyTorch's, are external (ExternalStream and its like) and have no Close.
//
// # Threads
//
// All of it may be used from any goroutine at once; a stream orders what it is given in the order
// of the calls. The calling thread's current context (CUDA) and device (HIP) are never seen
// changed.
//
// # Errors
//
// An ability that is conclusively not there is an error that wraps [errors.ErrUnsupported]. The
// causes of errors.go are found by [errors.Is]; all others carry the driver's own words. No call
// waits for a device, but Close of memory and modules, where drivers do, and the Wait methods,
// which end with their context.
//
// # Cost
//
// Beside the driver's own time a call takes 0.1 to 0.2 µs. On an H200 (driver 580) a query of an
// event takes 1.4 µs, a launch with the wait for it 9 to 10 µs, and copies of 4 KiB to a peer 1.8
// µs each; one large copy runs at 394 GB/s to a peer over NVLink and at 55 GB/s to pinned host
// memory. go test -bench . measures all. The HIP side has met a runtime (5.2) without a device
// only.
package device
