// SPDX-License-Identifier: MIT

// Package headertest writes and reads queue formats with the structs and inline functions of libibverbs-dev's <infiniband/mlx5dv.h>. Tests
// hold core/gpunic/mlx5 against them; nothing else imports it. Without that header Built is false, and all else does nothing.
package headertest
