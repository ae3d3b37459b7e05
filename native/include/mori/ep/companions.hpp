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
    static constexpr uint32_t kEach = 4;  // words of a lane

    MORI_DEVICE_INLINE Companions(const Op& op, const DispatchArgs& args) : op_(op), args_(args) {
        const uint32_t choices = op.topk * sizeof(float);
        weights_ = args.weights != nullptr ? choices : 0;
        indices_ = weights_ + choices;
        const bool words = args.scaleBytes % 4 == 0 && indices_ + args.scaleBytes <= kEach * kWarpSize * 4;
        scales_ = indices_ + (words ? args.scaleBytes : 0);
        apart_ = words ? 0 : args.scaleBytes;
        inWords_ = scales_ <= kEach * kWarpSize * 4;
    }

    /// Reads those of a token.
    MORI_DEVICE_INLINE void load(uint32_t token) {
        token_ = token;
        if (!inWords_) {
            return;
        }
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < kEach; i++) {
            const uint32_t at = (i * kWarpSize + laneInWarp()) * 4;
            if (at < scales_) {
                words_[i] = *reinterpret_cast<const uint32_t*>(source(at));
            }
        }
    }

    /// Writes them beside a row. All lanes, with the same arguments.
    MORI_DEVICE_INLINE void store(uint32_t rank, uint32_t slot) const {
        char* const base = memoryOf(op_, rank);
        if (inWords_) {
            MORI_DEVICE_UNROLL
            for (uint32_t i = 0; i < kEach; i++) {
                const uint32_t at = (i * kWarpSize + laneInWarp()) * 4;
                if (at < scales_) {
                    storeOnce(base + target(at, slot), words_[i]);
                }
            }
        } else {
            for (uint32_t at = laneInWarp() * 4; at < indices_; at += kWarpSize * 4) {
                storeOnce(base + target(at, slot), *reinterpret_cast<const uint32_t*>(source(at)));
            }
        }
        if (apart_ != 0) {
            warpCopy(base + op_.regions.dispatchOutScales + uint64_t(slot) * apart_,
                     static_cast<const char*>(args_.scales) + uint64_t(token_) * apart_, apart_);
        }
        if (laneInWarp() == 0) {
            const uint32_t position = op_.rank * op_.positionStride + token_;
            storeOnce(base + op_.regions.srcPositions + uint64_t(slot) * 4, position);
        }
    }

private:
    /// Where the word at a byte of the companions is read, and where it is written.
    MORI_DEVICE_INLINE const char* source(uint32_t at) const {
        const uint64_t choices = op_.topk * sizeof(float);
        if (at < weights_) {
            return reinterpret_cast<const char*>(args_.weights) + token_ * choices + at;
        }
        if (at < indices_) {
            return reinterpret_cast<const char*>(args_.indices) + token_ * choices + (at - weights_);
        }
        return static_cast<const char*>(args_.scales) + uint64_t(token_) * args_.scaleBytes + (at - indices_);
    }

    MORI_DEVICE_INLINE uint64_t target(uint32_t at, uint32_t slot) const {
        const uint64_t choices = op_.topk * sizeof(float);
        if (at < weights_) {
            return op_.regions.dispatchOutWeights + slot * choices + at;
        }
        if (at < indices_) {
            return op_.regions.dispatchOutIndices + slot * choices + (at - weights_);
        }
        return op_.regions.dispatchOutScales + uint64_t(slot) * args_.scaleBytes + (at - indices_);
    }

    const Op& op_;
    const DispatchArgs& args_;
    uint32_t weights_, indices_, scales_;  // bytes of the companions up to the end of each
    uint32_t apart_;                       // bytes of scales that are no words, or too many
    bool inWords_;
    uint32_t token_ = 0;
    uint32_t words_[kEach] = {};
};

/// What of a token is kept for combine: the slots of its choices, and their weights.
class Kept {
public:
    static constexpr uint32_t kEach = 64 / kWarpSize;  // choices of a lane: topk is 64 at most

    MORI_DEVICE_INLINE Kept(const Op& op, const DispatchArgs& args, const Choices& choices) : op_(op), args_(args), choices_(choices) {}

    /// Reads the choices of a token.
    MORI_DEVICE_INLINE void load(uint32_t token) {
        token_ = token;
        MORI_DEVICE_UNROLL
        for (uint32_t i = 0; i < kEach; i++) {
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
        for (uint32_t i = 0; i < kEach; i++) {
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
