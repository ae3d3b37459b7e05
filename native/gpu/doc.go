// SPDX-License-Identifier: MIT

// Package gpu is the door to the drivers of GPUs: libcuda.so.1 and libamdhip64.so (versions 5 to
// 7), opened when they are first asked for. Nothing links against them, and no vendor's header is
// needed to build.
//
// [Open] answers in three ways, and once for each vendor: a [Driver]; an error that wraps
// [errors.ErrUnsupported], because there conclusively is no driver or no device; any other error
// if that is not known, and the next call asks again.
//
// Both vendors answer the same calls with the same meaning. A [Device] has memory and makes the
// rest: [Stream], [Event], [Module] and its [Function], and [Virtual] memory. They are values with
// the vendor's handle as a number; stream 0 is the default stream. Addresses are numbers. Every
// failed call is an [*Error] that has the vendor's name of the call, of the device, and of the
// error; [errors.Is] finds the causes of errors.go in it.
//
// A call enters its device on the thread that runs it and leaves before it returns, so that the
// current context (CUDA) or device (HIP) of a thread is never seen changed. On CUDA this is the
// device's primary context, the one of the CUDA runtime and so of PyTorch; it is made when a device
// is first entered and kept until the process ends. Listing devices and asking about addresses
// enters none. Nothing here waits for a device but what the driver itself makes wait, such as
// freeing memory.
package gpu
