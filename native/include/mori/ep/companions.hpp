// SPDX-License-Identifier: MIT
/// What goes with a row of a dispatch besides its elements, and what is kept of a token for combine.
#pragma once

#include "mori/ep/plan.hpp"

namespace mori::ep {

namespace internal {

/// What goes with a row besides its elements: weights, indices, scales and its position, as words that the lanes hold
/// while they write them to one destination after another.
class Companions {
public:
    static constexpr uint32_t kEach = kWarpSize < 32 ? 128 / kWarpSize : 4;  // words of a lane: at least weights and indices of 63 choices

    MORI_DEVICE_INLINE Companions(const Op& op, const DispatchArgs& args) : op_(op), args_(args) {
        const uint32_t choices = op.topk * sizeof(float);
        const uint32_t weights = args.weights != nullptr ? choices : 0;
        const uint32_t indices = weights + choices;
        const bool words = args.scaleBytes % 4 == 0 && indices + args.scaleBytes <= kEach * kWarpSize * 4;
        const uint32_t scales = indices + (words ? args.scaleBytes : 0);
        apart_ = words ? 0 : args.scaleBytes;
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < kEach; i++) {
            const uint32_t at = (i * kWarpSize + laneInWarp()) * 4;
            if (at < weights) {
                words_[i] = {reinterpret_cast<const char*>(args.weights) + at, op.regions.dispatchOutWeights + at, choices, 0};
            } else if (at < indices) {
                words_[i] = {reinterpret_cast<const char*>(args.indices) + (at - weights), op.regions.dispatchOutIndices + (at - weights), choices, 0};
            } else if (at < scales) {
                words_[i] = {static_cast<const char*>(args.scales) + (at - indices), op.regions.dispatchOutScales + (at - indices), args.scaleBytes, 0};
            }
        }
    }

    /// Reads those of a token.
    MORI_DEVICE_INLINE void load(uint32_t token) {
        token_ = token;
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < kEach; i++) {
            Word& word = words_[i];
            if (word.from != nullptr) {
                word.value = *reinterpret_cast<const uint32_t*>(word.from + uint64_t(token) * word.stride);
            }
        }
    }

    /// Writes them beside a row. All lanes, with the same arguments.
    MORI_DEVICE_INLINE void store(uint32_t rank, uint32_t slot) const {
        char* const base = memoryOf(op_, rank);
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < kEach; i++) {
            const Word& word = words_[i];
            if (word.from != nullptr) {
                storeOnce(base + word.to + uint64_t(slot) * word.stride, word.value);
            }
        }
        if (apart_ != 0) {
            warpCopyApart(base + op_.regions.dispatchOutScales + uint64_t(slot) * apart_,
                          static_cast<const char*>(args_.scales) + uint64_t(token_) * apart_, apart_);
        }
        if (laneInWarp() == 0) {
            const uint32_t position = op_.rank * op_.positionStride + token_;
            storeOnce(base + op_.regions.srcPositions + uint64_t(slot) * 4, position);
        }
    }

private:
    struct Word {
        const char* from = nullptr;  // of token 0; null: there is none
        uint64_t to = 0;             // of row 0, in the memory of an op
        uint32_t stride = 0;         // between those of tokens, and of rows
        uint32_t value = 0;
    };

    const Op& op_;
    const DispatchArgs& args_;
    uint32_t apart_;  // bytes of scales that are no words, or too many
    uint32_t token_ = 0;
    Word words_[kEach] = {};
};

/// What of a token is kept for combine: the slots of its choices, and their weights.
class Kept {
public:
    static constexpr uint32_t kEach = 64 / kWarpSize;  // choices of a lane: a token has 63 at most

    MORI_DEVICE_INLINE Kept(const Op& op, const DispatchArgs& args, const Choices& choices) : op_(op), args_(args), choices_(choices) {}

    /// Reads the choices of a token.
    MORI_DEVICE_INLINE void load(uint32_t token) {
        token_ = token;
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < kEach && i * kWarpSize < op_.topk; i++) {
            const uint32_t k = i * kWarpSize + laneInWarp();
            if (k < op_.topk) {
                chosen_[i] = choices_.chosen(token, k);
                weights_[i] = args_.weights != nullptr ? args_.weights[uint64_t(token) * op_.topk + k] : 0;
            }
        }
    }

    /// Writes what they came to. slots has one for each rank.
    MORI_DEVICE_INLINE void store(const int32_t* slots) const {
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < kEach && i * kWarpSize < op_.topk; i++) {
            const uint32_t k = i * kWarpSize + laneInWarp();
            if (k < op_.topk) {
                const uint64_t at = uint64_t(token_) * op_.topk + k;
                const uint32_t rank = choices_.rankOf(chosen_[i]);
                op_.slots[at] = rank < kMostRanks ? slots[rank] : int32_t(op_.world * op_.maxRecv);
                if (args_.weights != nullptr) {
                    op_.weights[at] = weights_[i];
                }
            }
        }
    }

private:
    const Op& op_;
    const DispatchArgs& args_;
    const Choices& choices_;
    uint32_t token_ = 0;
    uint32_t chosen_[kEach] = {};
    float weights_[kEach] = {};
};

}  // namespace internal
}  // namespace mori::ep
