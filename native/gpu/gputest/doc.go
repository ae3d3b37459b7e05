// SPDX-License-Identifier: MIT

// Package gputest gives tests a GPU on every machine: a real one where MORI_REQUIRE has gpu in its
// list, else two emulated ones, by a libcuda.so.1 whose devices are host memory and threads.
//
//	func TestMain(m *testing.M) { gputest.Main(m, fabrictest.Main) }
//
//	func TestCopy(t *testing.T) {
//		gputest.Need(t) // skips where there is neither; gputest.Need(t, 2) wants two devices
//		devices, err := device.Devices()
//		...
//	}
//
// The tests are the same on both, and so are they in processes that a test starts: a re-executed
// test binary with the same TestMain, or any other program, finds the emulated driver by
// LD_LIBRARY_PATH, which Main extends. What only an emulated GPU can be made to, [Hold], [Fail],
// [Delay] and [Memory] do; they skip on a real one. The variables of native/gpu/testdata/fake.c
// steer it too, in the environment of any process. MORI_EMULATE=hip has the tests run on emulated
// GPUs of AMD: libamdhip64.so.6 and the code objects for gfx942. tests/python/gpus.py is the same
// for Python.
//
// # What the emulated GPU is like
//
// Calls return at once; a thread for each stream does the work in its order: copies, memsets,
// kernels, events. Nothing else orders streams but events that are waited for, and memory changes
// when the turn of the work comes, so that a missing wait shows as wrong bytes, most surely with
// [Delay] or between [Hold] and its release. As on a real one, copies from pageable memory have
// read it when the call returns, and copies to it have written it.
//
// Memory is handed to other processes by handles, which end with the allocation or its process, and
// by descriptors of virtual memory. Its dma-bufs are for the emulated RDMA devices
// (native/verbs/verbstest), and of one allocation or mapping each. It is stricter than drivers are:
// a handle is opened once for a device, and never in its own process; a stream, event or module of
// another device is refused; memory that is freed, unpinned or unmapped while queued work names it
// ends the process with words that say which work, and so does a module that is unloaded under a
// launch. A process that was forked after the first call gets error 3.
//
// Kernels are the CPU build of native/kernels, found by the names that the shipped PTX and code
// objects have: at most 2 blocks of 8 threads, whatever the launch asks for (FAKE_GPU_BLOCKS,
// FAKE_GPU_THREADS). A new kernel there needs nothing here. Each module has variables of its own. A
// kernel that traps loses its device, as on a real one: all calls answer error 719 until the
// process ends.
//
// # What it is not like
//
//   - It says nothing of speed, and its overlap is that of threads.
//   - Its memory is the host's: coherent, ordered as the CPU orders it, and visible to all at once.
//     A fence that is missing in a kernel, or a host that reads what the GPU has not published,
//     does not show.
//   - A kernel or a host that loads and stores memory of a device that it does not reach, or of a
//     GPU at all, is not caught. Devices 0 and 1 reach each other; those after them reach nobody,
//     which their calls say.
//   - The default stream is a stream as any other: it waits for none, and none for it.
//   - Small allocations do not share a block of 2 MiB, so a handle is never of a neighbour's
//     memory, too.
//   - Each process counts the memory that it allocated itself. Freed memory is zeros to processes
//     that still have it mapped.
//   - PTX is not read but for its version, target and names; code other than mori's does not run.
package gputest
