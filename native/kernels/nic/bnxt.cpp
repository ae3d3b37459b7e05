// SPDX-License-Identifier: MIT
// Kernels that use a NIC of the bnxt family by themselves; never run on one. See mori/nic/kernels.hpp.
#include "mori/nic/bodies.hpp"

MORI_NIC_KERNELS(mori::nic::Provider::bnxt)
