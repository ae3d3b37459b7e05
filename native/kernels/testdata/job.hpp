// SPDX-License-Identifier: MIT
// A job on the CPU: each block of threads is a PE. Some PEs reach each other by loads and stores; the last one is "remote",
// by a transport that this file plays, so that the seam is run, too. A test includes it once.
#pragma once

#include "mori/shmem/device.hpp"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mutex>
#include <vector>

using namespace mori::shmem;
using mori::device::blockInGrid;

constexpr int kPes = 4;
constexpr int kRemote = kPes - 1;
constexpr uint32_t kThreads = 8;
constexpr uint64_t kHeap = 1 << 16;

inline void require(bool ok, const char* what) {
    if (!ok) {
        fprintf(stderr, "failed: %s\n", what);
        _exit(1);
    }
}

/// The heaps and states of a job whose PEs are the blocks of one launch.
struct Job {
    explicit Job(uint64_t limit = 60'000'000'000) {
        for (int pe = 0; pe < kPes; pe++) {
            heaps.push_back(static_cast<char*>(aligned_alloc(4096, kHeap)));
            memset(heaps.back(), 0, kHeap);
        }
        for (int pe = 0; pe < kPes; pe++) {
            for (int other = 0; other < kPes; other++) {
                const bool near = pe == other || (pe != kRemote && other != kRemote);
                peers[pe][other] = {near ? uint64_t(heaps[other]) : 0, near ? Transport::p2p : Transport::remote, 0};
            }
            states[pe] = {kStateVersion, pe, kPes, 0, uint64_t(heaps[pe]), kHeap, kHeap - 8 * kSyncWords, limit,
                          peers[pe], report};
        }
    }
    ~Job() {
        for (char* heap : heaps) {
            free(heap);
        }
    }

    template <class Kernel>
    void run(Kernel kernel) {
        mori::device::cpu::launch(kPes, kThreads, [&] {
            internal::self = &states[blockInGrid()];
            kernel();
        });
    }

    /// This PE's address of an offset.
    char* mine(uint64_t offset) const { return heaps[ShmemMyPe()] + offset; }

    std::vector<char*> heaps;
    Peer peers[kPes][kPes];
    State states[kPes];
    mori::device::WaitReport* report = nullptr;
};

inline Job* job = nullptr;
inline int remoteOps = 0;
inline std::mutex network;

/// A network of one wire: an operation at a time, complete when it returns.
extern "C" uint64_t mori_shmem_remote(const RemoteOp* op) {
    const std::lock_guard<std::mutex> lock(network);
    remoteOps++;
    const uint64_t here = uint64_t(job->heaps[ShmemMyPe()]);
    char* const there = job->heaps[op->pe] + (op->symmetric - here);
    switch (op->kind) {
        case RemoteKind::put:
            memcpy(there, reinterpret_cast<void*>(op->local), op->bytes);
            return 0;
        case RemoteKind::get:
            memcpy(reinterpret_cast<void*>(op->local), there, op->bytes);
            return 0;
        case RemoteKind::putSignal:
            memcpy(there, reinterpret_cast<void*>(op->local), op->bytes);
            return internal::applyAtomic(reinterpret_cast<uint64_t*>(job->heaps[op->pe] + (op->signal - here)), op->value,
                                         uint64_t(0), op->op);
        case RemoteKind::immediate:
            memcpy(there, &op->value, op->bytes);
            return 0;
        case RemoteKind::atomic:
            switch (op->bytes) {
                case 1:
                    return internal::applyAtomicPart(there, uint8_t(op->value), uint8_t(op->compare), op->op);
                case 2:
                    return internal::applyAtomicPart(there, uint16_t(op->value), uint16_t(op->compare), op->op);
                case 4:
                    return internal::applyAtomic(reinterpret_cast<uint32_t*>(there), uint32_t(op->value),
                                                 uint32_t(op->compare), op->op);
                default:
                    return internal::applyAtomic(reinterpret_cast<uint64_t*>(there), op->value, op->compare, op->op);
            }
        case RemoteKind::quiet:
            return 0;
    }
    return 0;
}
