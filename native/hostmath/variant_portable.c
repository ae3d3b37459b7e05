// SPDX-License-Identifier: MIT
//
// The loops for whatever every machine of this kind has: SSE2, NEON.

#define HM_NAME portable
#define HM_TARGET

#include "loops.h"
