// SPDX-License-Identifier: MIT
// Runs the CPU build of kernels for the emulated GPU. A grid is made small: FAKE_GPU_BLOCKS blocks of FAKE_GPU_THREADS threads at most,
// 2 of 8 if unset, read once. What depends on the shape of its grid beyond asking for it comes out wrong here. FAKE_GPU_LATE is for how many
// milliseconds the last lane of a grid is kept from beginning: what a kernel decides lane by lane then comes out differently in one block.
#include "fake_kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "mori/shmem/peer.hpp"

namespace {

using namespace mori::device;

/// One launch that runs. Lanes of one that trapped may stay, and so does it.
struct Running {
    fake_launch launch;
    std::vector<char> args;
    std::vector<std::unique_ptr<cpu::Block>> blocks;
    std::mutex mutex;
    std::condition_variable changed;
    uint32_t left = 0;
    bool trapped = false;
};

struct Lane {
    std::shared_ptr<Running> running;
    cpu::Block *block;
    uint32_t thread;
    uint32_t late;  // milliseconds
};

thread_local Running *current = nullptr;

void *runLane(void *arg) {
    const std::unique_ptr<Lane> lane(static_cast<Lane *>(arg));
    Running &running = *lane->running;
    current = &running;
    const timespec late{time_t(lane->late / 1000), long(lane->late % 1000) * 1'000'000};
    nanosleep(&late, nullptr);
    cpu::self = cpu::Self{lane->thread, lane->block};
    mori::shmem::internal::self = static_cast<mori::shmem::State *>(running.launch.state);
    running.launch.kernel->call(running.args.data());
    const std::lock_guard<std::mutex> held(running.mutex);
    running.left--;
    running.changed.notify_all();
    return nullptr;
}

uint32_t limit(const char *name, uint32_t otherwise) {
    const char *text = getenv(name);
    return text != nullptr && atoi(text) > 0 ? uint32_t(atoi(text)) : otherwise;
}

void start(const std::shared_ptr<Running> &running, cpu::Block *block, uint32_t thread, uint32_t late) {
    pthread_attr_t attributes;
    pthread_t id;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 512 << 10);
    if (pthread_create(&id, &attributes, runLane, new Lane{running, block, thread, late}) != 0) {
        fprintf(stderr, "emulated GPU: no thread for a lane\n");
        abort();
    }
    pthread_attr_destroy(&attributes);
}

const fake_kernel *&first() {
    static const fake_kernel *list = nullptr;
    return list;
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void fake_kernel_add(fake_kernel *kernel) {
    kernel->next = first();
    first() = kernel;
}

extern "C" const fake_kernel *fake_kernel_find(const char *name) {
    for (const fake_kernel *kernel = first(); kernel != nullptr; kernel = kernel->next) {
        if (strcmp(kernel->name, name) == 0) {
            return kernel;
        }
    }
    return nullptr;
}

extern "C" int fake_kernel_run(const fake_launch *launch) {
    static const uint32_t mostBlocks = limit("FAKE_GPU_BLOCKS", 2);
    static const uint32_t mostThreads = limit("FAKE_GPU_THREADS", 8) / cpu::kLanes * cpu::kLanes;
    const uint32_t blocks = std::min(launch->blocks, mostBlocks);
    const uint32_t threads = std::min(launch->threads, mostThreads);
    const uint32_t late = limit("FAKE_GPU_LATE", 0);
    const auto running = std::make_shared<Running>();
    running->launch = *launch;
    running->args.assign(static_cast<const char *>(launch->args),
                         static_cast<const char *>(launch->args) + launch->kernel->bytes);
    running->left = blocks * threads;
    for (uint32_t b = 0; b < blocks; b++) {
        running->blocks.push_back(std::make_unique<cpu::Block>(b, blocks, threads));
    }
    for (const auto &block : running->blocks) {
        for (uint32_t t = 0; t < threads; t++) {
            const bool last = block == running->blocks.back() && t + 1 == threads;
            start(running, block.get(), t, last ? late : 0);
        }
    }
    std::unique_lock<std::mutex> held(running->mutex);
    running->changed.wait(held, [&] { return running->left == 0 || running->trapped; });
    if (running->trapped) {
        current = nullptr;
        new std::shared_ptr<Running>(running);  // for the lanes that stay
    }
    return running->trapped ? 1 : 0;
}

extern "C" void fake_trap() {
    if (current == nullptr) {
        abort();
    }
    {
        const std::lock_guard<std::mutex> held(current->mutex);
        current->trapped = true;
        current->changed.notify_all();
    }
    for (;;) {
        pause();
    }
}
