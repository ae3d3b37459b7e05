// SPDX-License-Identifier: MIT
/// Arguments of the kernels of the standard-MoE form, in which the rows of each expert lie together. They must compute what
/// Config.PackExperts of ep/internal/plan computes.
#pragma once

#include "mori/ep/op.hpp"

namespace mori::ep {

/// Which row goes where, and the copy of the rows. Memory is this GPU's.
struct PackArgs {
    const int32_t* received;  ///< how many rows the last dispatch brought, at most maxRecv
    const int32_t* indices;   ///< [maxRecv, topk]: their experts
    const void* input;        ///< [maxRecv, rowBytes]
    void* packed;             ///< [experts, room, rowBytes]
    int32_t* counts;          ///< [experts]: rows of each
    int32_t* info;            ///< [experts, room]: which received rows these are, in their order
    int32_t* slots;           ///< [maxRecv, topk]: expert x room + place of each choice's row; -1: the expert is not here
    int32_t* rows;            ///< where place notes how many rows there were
    uint64_t rowBytes;
    uint32_t maxRecv, topk;
    uint32_t firstExpert, experts;  ///< of this rank
    uint32_t room;
    uint32_t unused;
};

/// Sums over the choices of each row, weighted.
struct UnpackArgs {
    const Op* op;
    const void* packed;    ///< [experts, room, hidden] of type
    const int32_t* slots;  ///< of place
    const int32_t* rows;   ///< of place
    const float* weights;  ///< [rows, topk]
    void* out;             ///< [rows, hidden] of type
    uint32_t topk;
    uint32_t hidden;
    uint32_t type;    ///< a device::Number
    uint32_t pulled;  ///< out is CombineIn: nobody may read the rows of the last combine there any more
};

}  // namespace mori::ep
