// SPDX-License-Identifier: MIT
// Kernels that use a NIC of the mlx5 family by themselves. See mori/nic/kernels.hpp.
#include "mori/nic/bodies.hpp"

MORI_NIC_KERNELS(mori::nic::Provider::mlx5)
