// SPDX-License-Identifier: MIT

// Package gpu wraps the GPU drivers libcuda.so.1 and libamdhip64.so (versions 5 to 7). It loads
// them when they are first needed. It does not link against them, and building it needs no vendor
// header.
//
// [Open] returns one of three results for each vendor: a [Driver]; an error that wraps
// [errors.ErrUnsupported], if there definitely is no driver or no device; or any other error, if
// that is unknown. In the last case the next call tries again.
//
// Both vendors' calls have the same meaning. A [Device] has memory and creates the other objects:
// [Stream], [Event], [Module] and its [Function], and [Virtual] memory. They are values that
// contain the vendor's handle as a number; stream 0 is the default stream. Addresses are numbers. A
// failed call returns an [*Error] with the vendor's names of the call and of the error, and the
// device. [errors.Is] finds the causes of errors.go in it.
//
// A call enters its device on the current thread and leaves it before it returns. So callers never
// see the thread's current context (CUDA) or device (HIP) change. On CUDA, a call enters the
// device's primary context, which the CUDA runtime, and so PyTorch, uses. It is created at the
// first call on the device and kept until the process ends. Listing devices and querying addresses
// enters no device. No call waits for a device, unless the driver itself does, as when freeing
// memory.
package gpu
