// SPDX-License-Identifier: MIT
// Launches kernels on threads that stay for later launches: to make one takes the thread sanitizer 0.3 ms of CPU time. It is plain C++,
// because each test program compiles it.
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>

#include "mori/device/vendor.hpp"

/// The threads that one thread of the host launches kernels on. They order what they do as new ones would: each begins after the launch,
/// and the launch returns after each has ended.
class LaneThreads {
public:
    using Call = void (*)(void* kernel);

    LaneThreads() { sem_init(&ended_, 0, 0); }
    LaneThreads(const LaneThreads&) = delete;
    LaneThreads& operator=(const LaneThreads&) = delete;
    ~LaneThreads() {
        call_ = nullptr;
        for (uint32_t i = 0; i < count_; i++) {
            sem_post(&lanes_[i].start);
            pthread_join(lanes_[i].thread, nullptr);
            sem_destroy(&lanes_[i].start);
        }
        sem_destroy(&ended_);
    }

    void launch(uint32_t blocks, uint32_t threads, Call call, void* kernel) {
        using mori::device::cpu::Block;
        Block* grid[kMost];
        call_ = call, kernel_ = kernel, running_ = blocks * threads;
        prepare(running_);
        for (uint32_t b = 0; b < blocks; b++) {
            grid[b] = new Block(b, blocks, threads);
        }
        for (uint32_t i = 0; i < blocks * threads; i++) {
            lanes_[i].self = {i % threads, grid[i / threads]};
            sem_post(&lanes_[i].start);
        }
        wait(&ended_);
        for (uint32_t b = 0; b < blocks; b++) {
            delete grid[b];
        }
    }

private:
    static constexpr uint32_t kMost = 512;

    struct Lane {
        LaneThreads* all;
        pthread_t thread;
        sem_t start;
        mori::device::cpu::Self self;
    };

    void prepare(uint32_t lanes) {
        if (lanes > kMost) {
            abort();
        }
        for (; count_ < lanes; count_++) {
            Lane& lane = lanes_[count_];
            lane.all = this;
            sem_init(&lane.start, 0, 0);
            if (pthread_create(&lane.thread, nullptr, run, &lane) != 0) {
                abort();
            }
        }
    }

    static void* run(void* arg) {
        Lane& lane = *static_cast<Lane*>(arg);
        LaneThreads& all = *lane.all;
        for (wait(&lane.start); all.call_ != nullptr; wait(&lane.start)) {
            mori::device::cpu::self = lane.self;
            all.call_(all.kernel_);
            if (__atomic_sub_fetch(&all.running_, 1, __ATOMIC_ACQ_REL) == 0) {
                sem_post(&all.ended_);
            }
        }
        return nullptr;
    }

    static void wait(sem_t* semaphore) {
        while (sem_wait(semaphore) != 0) {
        }
    }

    Call call_ = nullptr;  ///< none: the threads end
    void* kernel_ = nullptr;
    uint32_t running_ = 0, count_ = 0;
    Lane lanes_[kMost];
    sem_t ended_;
};

inline LaneThreads& laneThreads() {
    thread_local LaneThreads threads;
    return threads;
}

/// Runs kernel() on every thread of the grid and returns when all have ended.
template <class Kernel>
void launch(uint32_t blocks, uint32_t threads, Kernel kernel) {
    laneThreads().launch(blocks, threads, [](void* it) { (*static_cast<Kernel*>(it))(); }, &kernel);
}
