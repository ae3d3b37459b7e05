// SPDX-License-Identifier: MIT
// How long 8 bytes and their signal take until another PE sees them: what mori bench measures.
#include "mori/shmem/device.hpp"

namespace {
constexpr uint64_t kArrives = 16;  ///< words from the source to where the other PE's arrive, in lines of 128 bytes
constexpr uint64_t kSignal = 32;   ///< and to the signal
}  // namespace

/// One block on each of PEs 0 and 1; its first thread does it. In a round a word goes there and back, each way with a signal that says
/// how many there were: first of them before the launch. The result, in mapped host memory, is the nanoseconds of the rounds, to
/// which one more is made before them, in which the PEs wait for each other to begin; and how many words were wrong.
extern "C" MORI_DEVICE_KERNEL(32) void mori_shmem_signal_rounds(uint64_t* words, uint64_t first, uint64_t rounds,
                                                                uint64_t* result) {
    using namespace mori::shmem;
    if (mori::device::threadInBlock() != 0) {
        return;
    }
    uint64_t start = 0;
    uint64_t wrong = 0;
    for (uint64_t turn = first + 1; turn <= first + 1 + rounds; turn++) {
        for (int half = 0; half < 2; half++) {
            if (half == ShmemMyPe()) {
                *words = turn * 3;
                ShmemPutMemNbiSignalThread(words + kArrives, words, 8, words + kSignal, turn, AMO_SIGNAL_SET, 1 - half);
            } else {
                ShmemUint64WaitUntilEquals(words + kSignal, turn);
                wrong += *static_cast<volatile uint64_t*>(words + kArrives) != turn * 3;
            }
        }
        if (turn == first + 1) {
            start = mori::device::nanoseconds();
        }
    }
    result[0] = mori::device::nanoseconds() - start;
    result[1] = wrong;
}
