// SPDX-License-Identifier: MIT
//
// Read before all else where kernels are compiled for the emulated GPU: a lane that traps ends its launch and not the process, and
// one that waits lets others run.

#ifndef MORI_FAKE_TRAP_H
#define MORI_FAKE_TRAP_H

#include <sched.h>
#include <time.h>

extern "C" [[noreturn]] void fake_trap();

static inline int fake_clock_gettime(clockid_t clock, timespec *now) {
    sched_yield();
    return clock_gettime(clock, now);
}

#define clock_gettime fake_clock_gettime
#define __builtin_trap fake_trap

#endif
