// SPDX-License-Identifier: MIT
//
// libibverbs' own header in place of abi.h, for abi_test.go.

// Sources define it before they include anything.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

// What ibv_query_port fills has a name of its own there, without a declaration: the beginning of an
// ibv_port_attr.
#define _compat_ibv_port_attr ibv_port_attr

#include <infiniband/verbs.h>

// Macros over functions of the same name.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
