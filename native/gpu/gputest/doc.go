// SPDX-License-Identifier: MIT

// Package gputest gives tests a GPU on every machine: a real one where MORI_REQUIRE has gpu in its list, else an emulated one, which is a
// libcuda.so.1 whose devices are host memory (native/gpu/testdata).
//
//	func TestMain(m *testing.M) { gputest.Main(m, fabrictest.Main) }
//
//	func TestCopy(t *testing.T) {
//		gputest.Need(t) // skips where there is neither; gputest.Need(t, 2) wants two devices
//		devices, err := device.Devices()
//		...
//	}
//
// The tests are the same on both, and so are they in processes that a test starts: a re-executed test binary with the same TestMain,
// or any other program, finds the emulated driver by LD_LIBRARY_PATH, which Main extends.
package gputest
