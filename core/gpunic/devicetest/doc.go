// SPDX-License-Identifier: MIT

// Package devicetest holds the device's side of a NIC's queue (native/include/mori/nic) against the
// emulated NIC of core/gpunic/emu: its tests run the kernels of native/kernels/nic on threads of
// the CPU, as package native/nic builds them, over every wire and under seeds of chaos, and look at
// every byte. There is nothing to import.
//
// x86 shows stores in their order, so a fence that is missing is not seen here:
// tests/python/kernels/test_nic.py takes fences away and shows who notices.
package devicetest
