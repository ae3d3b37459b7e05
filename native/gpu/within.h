// SPDX-License-Identifier: MIT

#ifndef MORI_GPU_WITHIN_H
#define MORI_GPU_WITHIN_H

#include "table.h"

// WITHIN evaluates call with dev entered on this thread, and leaves before it gives the answer: no code of the caller's ever runs
// with another device or context current than the caller's own.
#define WITHIN(a, dev, call)                                       \
	({                                                               \
		struct gpu_saved saved_;                                       \
		struct gpu_rc rc_ = (a)->v->enter(a, dev, &saved_);            \
		if (!rc_.code) {                                               \
			rc_ = call;                                                  \
			(a)->v->leave(a, dev, &saved_);                              \
		}                                                              \
		rc_;                                                           \
	})

#endif
