// SPDX-License-Identifier: MIT
//
// Read before all else where kernels are compiled for the emulated GPU: a lane that traps ends its launch and not the process.

#ifndef MORI_FAKE_TRAP_H
#define MORI_FAKE_TRAP_H

extern "C" [[noreturn]] void fake_trap();

#define __builtin_trap fake_trap

#endif
