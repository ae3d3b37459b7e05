// SPDX-License-Identifier: MIT

#ifdef __x86_64__

#define HM_NAME avx2
#define HM_TARGET __attribute__((target("avx2")))

#include "loops.h"

#endif
