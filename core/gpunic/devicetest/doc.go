// SPDX-License-Identifier: MIT

// Package devicetest tests the device side of a NIC's queue (native/include/mori/nic) against the
// emulated NIC of core/gpunic/emu. The tests run the kernels of native/kernels/nic on CPU threads,
// as package native/nic builds them, with every wire and under seeds of chaos, and check every
// byte. The package exports nothing.
//
// x86 makes stores visible in order, so these tests cannot detect a missing fence.
// tests/python/kernels/test_nic.py removes fences and shows which tests fail.
package devicetest
