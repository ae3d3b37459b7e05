// SPDX-License-Identifier: MIT
// Runs single words of the device's symmetric memory on the CPU: every type by its own name, alone and beside others of the
// same word of 4 bytes, and calls that name memory by an object and an offset.
#include "job.hpp"

using mori::device::blockSync;
using mori::device::kWarpSize;
using mori::device::threadInBlock;
using mori::device::warpInBlock;

namespace {

// Offsets in a heap.
constexpr uint64_t kWords = 256;
constexpr uint64_t kObject = 4096;
constexpr uint64_t kSignal = 8192;

/// All threads of all PEs add to neighbours in one word of PE 0, each its own share.
template <class T, class Add>
void sums(Add add) {
    Job here;
    job = &here;
    here.run([&] {
        T* const words = reinterpret_cast<T*>(here.mine(kWords));
        for (int round = 0; round < 5; round++) {
            add(&words[threadInBlock()], T(threadInBlock() % 3), 0);
        }
        ShmemBarrierAllBlock();
        if (ShmemMyPe() == 0) {
            const T sum = T(5 * kPes * (threadInBlock() % 3));
            require(words[threadInBlock()] == sum, "every PE has added to each, and to no other");
            require(words[kThreads] == 0 && words[-1] == 0, "nothing beside them has changed");
        }
    });
}

/// What each operation leaves and returns, for a word whose neighbours are ones.
template <class T>
void operations() {
    Job here;
    job = &here;
    here.run([&] {
        if (threadInBlock() != 0 || ShmemMyPe() != 1) {
            return;
        }
        for (const int pe : {1, 2, kRemote}) {
            T* const all = reinterpret_cast<T*>(here.heaps[pe] + kWords);
            all[0] = all[1] = all[2] = T(~T(0));
            T* const word = reinterpret_cast<T*>(here.mine(kWords)) + 1;
            const auto left = [&] {
                ShmemQuietThread(pe);
                return all[1];
            };
            ShmemAtomicTypeNonFetchThread(word, T(0x53), AMO_SET, pe);
            require(left() == T(0x53), "set");
            require(ShmemAtomicTypeFetchThread(word, T(1), T(0), AMO_FETCH_ADD, pe) == T(0x53) && left() == T(0x54), "add");
            require(ShmemAtomicTypeFetchThread(word, T(0), T(0), AMO_FETCH_INC, pe) == T(0x54) && left() == T(0x55), "inc");
            require(ShmemAtomicTypeFetchThread(word, T(0x50), T(0), AMO_FETCH_AND, pe) == T(0x55) && left() == T(0x50), "and");
            require(ShmemAtomicTypeFetchThread(word, T(0x0f), T(0), AMO_FETCH_OR, pe) == T(0x50) && left() == T(0x5f), "or");
            require(ShmemAtomicTypeFetchThread(word, T(0x5a), T(0), AMO_FETCH_XOR, pe) == T(0x5f) && left() == T(0x05), "xor");
            require(ShmemAtomicTypeFetchThread(word, T(7), T(6), AMO_COMPARE_SWAP, pe) == T(5) && left() == T(5), "not 6");
            require(ShmemAtomicTypeFetchThread(word, T(7), T(5), AMO_COMPARE_SWAP, pe) == T(5) && left() == T(7), "5");
            require(ShmemAtomicTypeFetchThread(word, T(-1), T(0), AMO_SWAP, pe) == T(7) && left() == T(-1), "swap");
            require(ShmemAtomicTypeFetchThread(word, T(9), T(0), AMO_FETCH, pe) == T(-1) && left() == T(-1), "fetch");
            ShmemAtomicTypeNonFetch(word, T(9), AMO_ACK, pe);
            require(left() == T(-1), "what is no operation on words changes nothing");
            require(all[0] == T(~T(0)) && all[2] == T(~T(0)), "neighbours stay");
        }
    });
}

/// A number that runs around all PEs: each waits for it, adds one and passes it on.
template <class T, class Equals, class Greater>
void relay(Equals equals, Greater greater) {
    Job here;
    job = &here;
    here.run([&] {
        if (threadInBlock() != 0) {
            return;
        }
        T* const word = reinterpret_cast<T*>(here.mine(kWords)) + 1;
        const int next = (ShmemMyPe() + 1) % kPes;
        for (int turn = 0; turn < 6; turn++) {
            const T mine = T(turn * kPes + ShmemMyPe());
            if (mine > 0) {
                if (turn % 2 == 0) {
                    equals(word, mine);
                } else {
                    require(greater(word, T(mine - 1)) == mine, "the value that ended the wait");
                }
            }
            ShmemAtomicTypeNonFetchThread(word, T(mine + 1), AMO_SET, next);
        }
    });
}

#define WORDS(Name, T)                                                                                   \
    sums<T>([](T* at, T value, int pe) { Shmem##Name##AtomicAddThread(at, value, pe); });                \
    operations<T>();                                                                                     \
    relay<T>([](T* at, T value) { Shmem##Name##WaitUntilEquals(at, value); },                            \
             [](T* at, T value) { return Shmem##Name##WaitUntilGreaterThan(at, value); });

void everyType() {
    WORDS(Uint8, uint8_t)
    WORDS(Int8, int8_t)
    WORDS(Schar, signed char)
    WORDS(Uint16, uint16_t)
    WORDS(Int16, int16_t)
    WORDS(Uint32, uint32_t)
    WORDS(Int32, int32_t)
    WORDS(Uint64, uint64_t)
    WORDS(Int64, int64_t)
    WORDS(Long, long)
    WORDS(Ulong, unsigned long)
}

void comparesWithSigns() {
    Job here;
    job = &here;
    here.run([&] {
        if (threadInBlock() == 0) {
            int8_t* const word = reinterpret_cast<int8_t*>(here.mine(kWords));
            *word = -3;
            require(ShmemInt8WaitUntilGreaterThan(word, -4) == -3, "-3 is greater than -4");
            uint8_t* const bits = reinterpret_cast<uint8_t*>(word);
            require(ShmemUint8WaitUntilGreaterThan(bits, 4) == 253, "and as an unsigned number than 4");
        }
    });
}

/// Values from registers: as many bytes as the type has, floating ones by their bits.
void immediates() {
    Job here;
    job = &here;
    here.run([&] {
        char* const at = here.mine(kWords);
        const SymmetricObject object{at, 256};
        const int next = (ShmemMyPe() + 1) % kPes;
        if (warpInBlock() == 0) {
            ShmemPutTypeImmNbiWarp<double>(object, 2, 0.5, next);
            ShmemPutInt8ImmNbiWarp(reinterpret_cast<int8_t*>(at) + 1, int8_t(-7), next);
        }
        if (threadInBlock() == 1) {
            ShmemPutTypeImmNbi(reinterpret_cast<float*>(at + 4), -2.5f, next);
            ShmemPutUint16ImmNbiThread(object, 1, 0xabcd, next);
            const uint64_t value = 0x0807060504030201;
            ShmemPutSizeImmNbiThread(object, 33, &value, 8, next);  // not aligned
            ShmemPutSizeImmNbiThread(at + 48, &value, 3, next);
        }
        ShmemBarrierAllBlock();
        require(*reinterpret_cast<double*>(at + 16) == 0.5 && *reinterpret_cast<float*>(at + 4) == -2.5f, "floating");
        require(at[0] == 0 && at[1] == -7 && uint8_t(at[2]) == 0xcd && uint8_t(at[3]) == 0xab, "bytes and halves");
        for (int i = 0; i < 8; i++) {
            require(at[33 + i] == i + 1, "a word that is not aligned");
        }
        require(at[48] == 1 && at[50] == 3 && at[51] == 0 && at[32] == 0 && at[41] == 0, "no byte more");
    });
}

/// Objects and offsets name the same memory as addresses do.
void objects() {
    Job here;
    job = &here;
    here.run([&] {
        const SymmetricObject object{here.mine(kObject), 1024};
        const SymmetricObject signal{here.mine(kSignal), 64};
        const int next = (ShmemMyPe() + 1) % kPes;
        const int last = (ShmemMyPe() + kPes - 1) % kPes;
        uint16_t* const source = object.at<uint16_t>(100);
        for (uint32_t i = threadInBlock(); i < 50; i += kThreads) {
            source[i] = uint16_t(ShmemMyPe() * 1000 + int(i));
        }
        blockSync();
        ShmemPutUint16NbiSignalBlock(object, 3, object, 100, 50, signal, 16, 5, AMO_SIGNAL_ADD, next);
        if (threadInBlock() == 0) {
            ShmemUint64WaitUntilEquals(signal.at<uint64_t>(2), 5);
        }
        blockSync();
        require(object.at<uint16_t>(3)[49] == uint16_t(last * 1000 + 49), "offsets of typed calls count elements");
        ShmemQuietThread(next, object);
        ShmemBarrierAllBlock();
        ShmemGetUint16Block(object, 200, object, 3, 50, next);
        require(object.at<uint16_t>(200)[7] == uint16_t(ShmemMyPe() * 1000 + 7), "what the neighbour has is mine");
        ShmemBarrierAllBlock();
        ShmemUint32AtomicAddWarp(object, 200, 2, next);
        const uint32_t one = 1;
        ShmemAtomicSizeNonFetchWarp(object, 4 * 200, &one, 4, AMO_ADD, next);
        ShmemInternalBarrierBlock();
        require(*object.at<uint32_t>(200) == 3 * kThreads / kWarpSize, "one of each warp");
        require(ShmemAtomicUint32FetchWarp(object, 200, 0, 0, AMO_FETCH, next) == 3 * kThreads / kWarpSize, "all lanes get it");
    });
}

}  // namespace

int main() {
    everyType();
    comparesWithSigns();
    immediates();
    objects();
    puts("all ran");
    return 0;
}
