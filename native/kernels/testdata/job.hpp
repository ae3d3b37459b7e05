// SPDX-License-Identifier: MIT
// A job on the CPU: each block of threads is a PE. Some PEs reach each other by loads and stores; the last one is reached by the
// queues of proxies, whose hosts are threads. A test includes it once.
#pragma once

#include "mori/shmem/device.hpp"
#include "proxy_host.hpp"
#include "threads.hpp"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memory>
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
            hosts.push_back(std::make_unique<mori::proxy::TestHost>(heaps, kHeap, heaps[pe], limit));
            for (int other = 0; other < kPes; other++) {
                const bool near = pe == other || (pe != kRemote && other != kRemote);
                peers[pe][other] = {near ? uint64_t(heaps[other]) : uint64_t(&hosts[pe]->queue),
                                    near ? Transport::p2p : Transport::remote, 0};
            }
            states[pe] = {kStateVersion, pe, kPes, pe == kRemote ? kPes - 1u : 1u, uint64_t(heaps[pe]), kHeap,
                          kHeap - 8 * kSyncWords, limit, peers[pe], report};
        }
    }
    ~Job() {
        for (char* heap : heaps) {
            free(heap);
        }
    }

    template <class Kernel>
    void run(Kernel kernel) {
        for (auto& host : hosts) {
            host->start();
        }
        launch(kPes, kThreads, [&] {
            internal::self = &states[blockInGrid()];
            kernel();
        });
        for (auto& host : hosts) {
            host->stop();
        }
    }

    /// Commands that hosts were given.
    uint64_t commands() const {
        uint64_t sum = 0;
        for (const auto& host : hosts) {
            sum += host->served;
        }
        return sum;
    }

    /// This PE's address of an offset.
    char* mine(uint64_t offset) const { return heaps[ShmemMyPe()] + offset; }

    std::vector<char*> heaps;
    std::vector<std::unique_ptr<mori::proxy::TestHost>> hosts;
    Peer peers[kPes][kPes];
    State states[kPes];
    mori::device::WaitReport* report = nullptr;
};

inline Job* job = nullptr;
