// SPDX-License-Identifier: MIT
// A user's kernels on symmetric memory, one PE a GPU, compiled by nvcc.
#include "mori/shmem/device.hpp"
#include "shmem_kernels.hpp"

using namespace mori::shmem;
using namespace mori::device;

/// One block. Messages of any size go around the ring, each with a signal that must not overtake it.
extern "C" MORI_DEVICE_KERNEL(256) void ring(char* heap, uint64_t rounds, Result* result) {
    uint64_t* const signal = reinterpret_cast<uint64_t*>(heap + kSignal);
    uint64_t* const taken = reinterpret_cast<uint64_t*>(heap + kTaken);
    const int next = (ShmemMyPe() + 1) % ShmemNPes();
    const int last = (ShmemMyPe() + ShmemNPes() - 1) % ShmemNPes();
    for (uint64_t turn = 1; turn <= rounds; turn++) {
        const uint64_t bytes = turn * 7919 % 60000;
        const uint64_t shift = turn % 32;
        for (uint64_t i = threadInBlock(); i < bytes; i += blockSize()) {
            heap[kSource + i] = char(i * 7 + turn * 13 + uint64_t(ShmemMyPe()));
        }
        blockSync();
        if (turn % 3 == 0) {
            ShmemPutMemNbiSignalBlock(heap + kTarget + shift, heap + kSource, bytes, signal, turn, AMO_SIGNAL_SET, next);
        } else if (turn % 3 == 1 && warpInBlock() == 1) {
            ShmemPutMemNbiSignalWarp(heap + kTarget + shift, heap + kSource, bytes, signal, 1, AMO_SIGNAL_ADD, next);
        } else if (turn % 3 == 2 && threadInBlock() == 77) {
            ShmemPutMemNbiSignalThread(heap + kTarget + shift, heap + kSource, bytes, signal, turn, AMO_SIGNAL_SET, next);
        }
        if (threadInBlock() == 0) {
            ShmemUint64WaitUntilEquals(signal, turn);
        }
        blockSync();
        for (uint64_t i = threadInBlock(); i < bytes; i += blockSize()) {
            const char seen = *static_cast<volatile char*>(heap + kTarget + shift + i);
            if (seen != char(i * 7 + turn * 13 + uint64_t(last))) {
                atomicAdd<Scope::system, Order::relaxed>(&result->wrong, uint64_t(1));
            }
        }
        blockSync();
        if (threadInBlock() == 0) {
            ShmemUint64AtomicAddThread(taken, 1, last);
            ShmemUint64WaitUntilGreaterThan(taken, turn - 1);
        }
        blockSync();
    }
}

/// One thread. 8 bytes and their signal, there and back.
extern "C" MORI_DEVICE_KERNEL(32) void put_signal(char* heap, uint64_t rounds, Result* result) {
    uint64_t* const signal = reinterpret_cast<uint64_t*>(heap + kSignal);
    uint64_t* const word = reinterpret_cast<uint64_t*>(heap + kSource);
    const int other = 1 - ShmemMyPe();
    const uint64_t start = nanoseconds();
    for (uint64_t turn = 1; turn <= rounds; turn++) {
        for (int half = 0; half < 2; half++) {
            if (half == ShmemMyPe()) {
                *word = turn * 3;
                ShmemPutMemNbiSignalThread(heap + kTarget, word, 8, signal, turn, AMO_SIGNAL_SET, other);
            } else {
                ShmemUint64WaitUntilEquals(signal, turn);
                if (*reinterpret_cast<volatile uint64_t*>(heap + kTarget) != turn * 3) {
                    result->wrong++;
                }
            }
        }
    }
    result->nanoseconds = nanoseconds() - start;
}

/// One thread.
extern "C" MORI_DEVICE_KERNEL(32) void barriers(char* heap, uint64_t rounds, Result* result) {
    uint64_t* const word = reinterpret_cast<uint64_t*>(heap + kTarget);
    const int other = 1 - ShmemMyPe();
    const uint64_t start = nanoseconds();
    for (uint64_t turn = 1; turn <= rounds; turn++) {
        ShmemPutUint64ImmNbiThread(word + turn % 2, turn, other);
        ShmemBarrierAllThread();
        if (*static_cast<volatile uint64_t*>(word + turn % 2) != turn) {
            result->wrong++;
        }
    }
    result->nanoseconds = nanoseconds() - start;
}
