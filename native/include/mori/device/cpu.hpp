// SPDX-License-Identifier: MIT
/// The CPU build of kernels: a thread of the operating system for each lane, so that sanitizers see the kernels' own
/// logic. It is for tests: one small grid at a time, no speed.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>

#include <thread>
#include <vector>

namespace mori::device::cpu {

constexpr uint32_t kLanes = 4;

/// A barrier that the thread sanitizer knows.
class Barrier {
public:
    explicit Barrier(uint32_t threads) { pthread_barrier_init(&barrier_, nullptr, threads); }
    ~Barrier() { pthread_barrier_destroy(&barrier_); }
    Barrier(const Barrier&) = delete;
    Barrier& operator=(const Barrier&) = delete;
    void wait() { pthread_barrier_wait(&barrier_); }

private:
    pthread_barrier_t barrier_;
};

class Warp {
public:
    void sync() { all_.wait(); }

    uint64_t broadcast(uint32_t lane, uint64_t value, uint32_t from) {
        slots_[lane] = value;
        all_.wait();
        const uint64_t seen = slots_[from];
        all_.wait();
        return seen;
    }

    uint64_t ballot(uint32_t lane, bool mine) {
        slots_[lane] = mine ? 1 : 0;
        all_.wait();
        uint64_t bits = 0;
        for (uint32_t i = 0; i < kLanes; i++) {
            bits |= slots_[i] << i;
        }
        all_.wait();
        return bits;
    }

private:
    Barrier all_{kLanes};
    uint64_t slots_[kLanes] = {};
};

struct Block {
    Block(uint32_t index, uint32_t blocks, uint32_t threads)
        : index(index), blocks(blocks), threads(threads), all(threads), warps(threads / kLanes) {}

    /// The block's one object of the type. Its threads may ask at once.
    template <class Type>
    Type& shared() {
        static_assert(sizeof(Type) <= sizeof(shared_) && alignof(Type) <= 16);
        return *reinterpret_cast<Type*>(shared_);
    }

    uint32_t index, blocks, threads;
    Barrier all;
    std::vector<Warp> warps;

private:
    alignas(16) unsigned char shared_[48 << 10];
};

/// Who the running thread is.
struct Self {
    uint32_t thread = 0;
    Block* block = nullptr;
    Warp& warp() const { return block->warps[thread / kLanes]; }
};

inline thread_local Self self;

/// What a lane does between looks when it has waited for so many nanoseconds: there are fewer cores than lanes, and whom it waits for wants one.
inline void rest(uint64_t waited) {
    constexpr uint64_t kShort = 100'000, kLeast = 50'000, kMost = 5'000'000;
    if (waited < kShort) {
        sched_yield();
        return;
    }
    const uint64_t part = waited / 8;
    const timespec pause{0, long(part < kLeast ? kLeast : part < kMost ? part : kMost)};
    nanosleep(&pause, nullptr);
}

/// Runs kernel() on every thread of the grid and returns when all have ended.
template <class Kernel>
void launch(uint32_t blocks, uint32_t threads, Kernel kernel) {
    std::vector<Block*> grid;
    std::vector<std::thread> running;
    for (uint32_t b = 0; b < blocks; b++) {
        grid.push_back(new Block(b, blocks, threads));
        for (uint32_t t = 0; t < threads; t++) {
            running.emplace_back([block = grid.back(), t, &kernel] {
                self = Self{t, block};
                kernel();
            });
        }
    }
    for (std::thread& thread : running) {
        thread.join();
    }
    for (Block* block : grid) {
        delete block;
    }
}

}  // namespace mori::device::cpu
