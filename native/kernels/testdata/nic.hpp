// SPDX-License-Identifier: MIT
// The reference NIC of a family: MORI_NIC_FAMILY, or mlx5. It has ReferenceNic, kFamily, and the file of the family's kernels.
#pragma once

#define MORI_NIC_mlx5 1
#define MORI_NIC_bnxt 2
#define MORI_NIC_ionic 3
#define MORI_NIC_NUMBER_(family) MORI_NIC_##family
#define MORI_NIC_NUMBER(family) MORI_NIC_NUMBER_(family)

#if !defined(MORI_NIC_FAMILY)
#define MORI_NIC_FAMILY mlx5
#endif

#if MORI_NIC_NUMBER(MORI_NIC_FAMILY) == MORI_NIC_mlx5
#include "nic_mlx5.hpp"
#define MORI_NIC_KERNELS_FILE "../nic/mlx5.cpp"
#elif MORI_NIC_NUMBER(MORI_NIC_FAMILY) == MORI_NIC_bnxt
#include "nic_bnxt.hpp"
#define MORI_NIC_KERNELS_FILE "../nic/bnxt.cpp"
#else
#include "nic_ionic.hpp"
#define MORI_NIC_KERNELS_FILE "../nic/ionic.cpp"
#endif
