// SPDX-License-Identifier: MIT
//
// libmlx5's own header in place of abi.h, for abi_test.go.

// Sources define it before they include anything.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <infiniband/mlx5dv.h>
