// SPDX-License-Identifier: MIT

#ifdef __x86_64__

#define HM_NAME avx512
#ifdef __clang__
#define HM_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define HM_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif

#include "loops.h"

#endif
