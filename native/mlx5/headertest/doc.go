// SPDX-License-Identifier: MIT

// Package headertest writes and reads queue formats with the structs and inline functions of
// libibverbs-dev's <infiniband/mlx5dv.h>. Tests compare core/gpunic/mlx5 with them; nothing else
// imports the package. Only Need reads the header, so that building needs none.
package headertest
