// SPDX-License-Identifier: MIT
// Runs the kernels that post to a proxy on the CPU, against a host's side in the fewest lines: puts of many threads through a ring that
// wraps, and fetching adds.
#include "mori/proxy/device.hpp"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "threads.hpp"

using namespace mori::proxy;
using mori::device::Order;
using mori::device::Scope;

struct Outcome {
    uint64_t nanoseconds, failed;
    uint32_t status, reserved;
};

extern "C" {
void mori_proxy_put(const Queue* queue, uint32_t pe, uint32_t each, uint64_t local, uint64_t bytes, uint64_t count, Outcome* outcome);
void mori_proxy_add(const Queue* queue, uint32_t pe, uint32_t region, uint64_t offset, uint64_t count, uint32_t* seen, Outcome* outcome);
}

namespace {

constexpr uint32_t kLog = 3;
constexpr uint64_t kSlots = 1 << kLog;
constexpr uint64_t kPosted = 400;
constexpr uint64_t kBytes = 24;

void require(bool ok, const char* what) {
    if (!ok) {
        fprintf(stderr, "failed: %s\n", what);
        _exit(1);
    }
}

/// The host's side: one PE, whose region is this process's memory.
struct Host {
    Host() {
        queue.version = kQueueVersion;
        queue.log = kLog;
        queue.pes = 1;
        queue.ring = ring;
        queue.details = details;
        queue.results = results;
        queue.board = &board;
        queue.status = &status;
        queue.state = &state;
        queue.busy = busy;
        queue.local = uint64_t(here);
        queue.waitLimit = 60'000'000'000;
        thread = std::thread([this] { serve(); });
    }
    ~Host() {
        stop = true;
        thread.join();
    }

    void serve() {
        for (uint64_t position = 0; !stop;) {
            const uint64_t slot = position % kSlots;
            const uint64_t lap = ((position >> kLog) & 1) ^ 1;
            const uint64_t first = mori::device::atomicLoad<Scope::system, Order::acquire>(&ring[slot].first);
            const uint64_t second = mori::device::atomicLoad<Scope::system, Order::acquire>(&ring[slot].second);
            if (first >> kLapShift != lap || second >> kLapShift != lap) {
                std::this_thread::yield();
                continue;
            }
            mori::device::fence<Scope::system>();
            act(position, Kind(first >> kKindShift & 31), first & ((1ull << kPlaceBits) - 1), second);
            position++;
            mori::device::atomicStore<Scope::system, Order::release>(&board.ended, position);
        }
    }

    void act(uint64_t position, Kind kind, uint64_t remote, uint64_t second) {
        const uint64_t slot = position % kSlots;
        if (kind == Kind::put) {
            memcpy(there + remote, here + (second & ((1ull << kPlaceBits) - 1)), second >> kPlaceBits & ((1 << kBytesBits) - 1));
            return;
        }
        require(kind == Kind::fetch && Atomic(second & 0xff) == Atomic::add && (second >> 8 & 0xff) == 8, "an add of 8 bytes");
        uint64_t* const word = reinterpret_cast<uint64_t*>(there + details[slot].remote);
        results[slot].value = *word;
        *word += details[slot].value;
        mori::device::atomicStore<Scope::system, Order::release>(&results[slot].ticket, position + 1);
    }

    alignas(16) Command ring[kSlots] = {};
    Detail details[kSlots] = {};
    Result results[kSlots] = {};
    Board board = {};
    State state = {};
    uint32_t status = 0;
    uint32_t busy[kSlots] = {};
    Queue queue = {};
    alignas(8) char here[kPosted * kBytes] = {};
    alignas(8) char there[kPosted * kBytes] = {};
    std::atomic<bool> stop{false};
    std::thread thread;
};

void manyPuts(bool each) {
    auto* const host = new Host;
    for (uint64_t i = 0; i < sizeof host->here; i++) {
        host->here[i] = char(i * 7 + i / 256);
    }
    Outcome outcome{};
    launch(2, 8, [&] { mori_proxy_put(&host->queue, 0, each, uint64_t(host->here), kBytes, kPosted, &outcome); });
    require(outcome.failed == 0, "each put ends well");
    require(memcmp(host->here, host->there, sizeof host->here) == 0, "each byte has arrived");
    require(host->state.head == kPosted, "as many commands as there were puts");
    delete host;
}

void adds() {
    auto* const host = new Host;
    std::vector<uint32_t> seen(kPosted);
    Outcome outcome{};
    launch(2, 8, [&] { mori_proxy_add(&host->queue, 0, 0, 8, kPosted, seen.data(), &outcome); });
    require(outcome.failed == 0, "each add ends well");
    for (const uint32_t times : seen) {
        require(times == 1, "each value was there once");
    }
    delete host;
}

/// Nobody reads: what waits is told after its limit, and whoever comes later at once.
void nobody() {
    auto* const host = new Host;
    host->stop = true;
    host->thread.join();
    host->thread = std::thread([] {});
    host->queue.waitLimit = 1'000'000;
    Outcome outcome{};
    launch(1, 4, [&] { mori_proxy_put(&host->queue, 0, 0, uint64_t(host->here), 8, 32, &outcome); });
    require(outcome.failed == 4, "each thread gives up");
    require(outcome.status == kTimeout || outcome.status == kStopped, "and says why");
    require(host->board.report.ready == 1 && host->board.report.seen == 0, "the first of them has reported");
    uint64_t old = 0;
    require(fetch(host->queue, 1, 0, Atomic::add, 1, 0, &old) == kRefused, "a PE that is not there");
    delete host;
}

}  // namespace

int main() {
    manyPuts(false);
    manyPuts(true);
    adds();
    nobody();
    puts("all ran");
}
