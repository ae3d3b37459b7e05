// SPDX-License-Identifier: MIT

// Package device is the Go API to GPUs of NVIDIA and AMD: memory, streams, events, modules, and
// access by other devices and processes.
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
// Drivers are opened on first use (package native/gpu). Devices and Lookup create nothing on a
// device. The first call that uses a device creates its context there: some hundred MiB on CUDA,
// shared with PyTorch, kept until the process ends.
//
// A [Copier] copies lists of segments, thousands of small ones per launch. A [Staging] is shared,
// bounded pinned host memory for GPU memory that has to pass a socket.
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
// Everything is safe for concurrent use. A stream executes work in the order of the calls. Calls do
// not change the calling thread's current context (CUDA) or device (HIP).
//
// # Errors
//
// If a feature is permanently unavailable, the error wraps [errors.ErrUnsupported]. [errors.Is]
// finds the causes of errors.go; all other errors have the driver's text. No call waits for a
// device, except the Wait methods, which end with their context, and Close of memory and modules if
// the driver waits.
//
// # Cost
//
// A call takes 0.1 to 0.2 µs plus the driver's time. On an H200 (driver 580) an event query takes
// 1.4 µs, a launch and its wait 9 to 10 µs, and a copy of 4 KiB to a peer 1.8 µs. One large copy
// reaches 394 GB/s to a peer over NVLink and 55 GB/s to pinned host memory. Run go test -bench . to
// measure all. The HIP side has only been run with a runtime (5.2) without a device.
package device
