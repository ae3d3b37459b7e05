// SPDX-License-Identifier: MIT
// The host's side of a proxy's queue in few lines, for tests: PEs are heaps of this process. Of the puts and gets between two signals or fences
// the last is done first, so that nobody relies on their order.
#pragma once

#include "mori/proxy/device.hpp"

#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <thread>
#include <vector>

namespace mori::proxy {

/// The words of a queue, and who serves it while there is somebody.
class TestHost {
public:
    static constexpr uint32_t kLog = 4;
    static constexpr uint64_t kSlots = 1 << kLog;

    /// The queue of the PE whose heap is local. Kernels see its limit end if nobody starts to serve it.
    TestHost(const std::vector<char*>& heaps, uint64_t heapBytes, char* local, uint64_t limit)
        : heaps_(heaps), bytes_(heapBytes), local_(local) {
        queue.version = kQueueVersion;
        queue.log = kLog;
        queue.pes = uint32_t(heaps.size());
        queue.ring = ring_;
        queue.details = details_;
        queue.results = results_;
        queue.board = &board;
        queue.status = status;
        queue.state = &state_;
        queue.busy = busy_;
        queue.local = uint64_t(local);
        queue.waitLimit = limit;
    }
    TestHost(const TestHost&) = delete;
    TestHost& operator=(const TestHost&) = delete;
    ~TestHost() { stop(); }

    void start() {
        serves_ = true;
        thread_ = std::thread([this] { serve(); });
    }
    /// What was posted is done before.
    void stop() {
        serves_ = false;
        if (thread_.joinable()) {
            thread_.join();
        }
    }

    /// What a PE's commands end with from now on.
    void break_(uint32_t pe, uint32_t why) {
        device::atomicStore<device::Scope::system, device::Order::relaxed>(&status[pe], why);
        trouble_ = kTrouble;
    }

    Queue queue = {};
    Board board = {};
    uint32_t status[16] = {};
    std::atomic<uint64_t> served{0};

private:
    struct Work {
        uint64_t position;
        Kind kind;
        uint32_t pe, change, word;
        Detail d;
    };

    bool read(uint64_t position, Work& work) {
        using device::Order;
        using device::Scope;
        const uint64_t slot = position % kSlots;
        const uint64_t lap = ((position >> kLog) & 1) ^ 1;
        const uint64_t first = device::atomicLoad<Scope::system, Order::acquire>(&ring_[slot].first);
        const uint64_t second = device::atomicLoad<Scope::system, Order::acquire>(&ring_[slot].second);
        if (first >> kLapShift != lap || second >> kLapShift != lap) {
            return false;
        }
        device::fence<Scope::system>();  // the stores of a command are relaxed, behind a fence
        const uint64_t place = (uint64_t(1) << kPlaceBits) - 1;
        work.position = position;
        work.kind = Kind(first >> kKindShift & 31);
        work.pe = uint32_t(first >> kPlaceBits & 0xffff);
        if ((first & kHasDetail) != 0) {
            work.change = uint32_t(second & 0xff);
            work.word = uint32_t(second >> 8 & 0xff);
            work.d = details_[slot];
        } else {
            work.d = {uint64_t(local_) + (second & place), first & place, second >> kPlaceBits & ((1 << kBytesBits) - 1), 0, 0, 0};
        }
        return true;
    }

    void serve() {
        std::vector<Work> loose;  // moves that may be done in any order
        uint64_t next = served;
        for (bool there = true; serves_ || there || !loose.empty();) {
            Work work{};
            there = next - served < kSlots && read(next, work);
            if (there && (work.kind == Kind::put || work.kind == Kind::get) && loose.size() < 5) {
                loose.push_back(work);
                next++;
                continue;
            }
            while (!loose.empty()) {
                act(loose.back());
                loose.pop_back();
            }
            if (there) {
                act(work);
                next++;
            } else {
                std::this_thread::yield();
            }
            device::atomicStore<device::Scope::system, device::Order::release>(&board.ended, next | trouble_);
            served = next;
        }
    }

    void act(const Work& work) {
        if (status[work.pe] != 0 || work.d.remote > bytes_ || work.d.bytes > bytes_ - work.d.remote) {
            return;
        }
        char* const there = heaps_[work.pe] + work.d.remote;
        switch (work.kind) {
            case Kind::put:
            case Kind::putSignal:
                memcpy(there, reinterpret_cast<void*>(work.d.local), work.d.bytes);
                if (work.kind == Kind::putSignal) {
                    change(heaps_[work.pe] + work.d.signal, 8, work);
                }
                return;
            case Kind::get:
                memcpy(reinterpret_cast<void*>(work.d.local), there, work.d.bytes);
                return;
            case Kind::immediate:
                store(there, work.d.value, work.d.bytes);
                return;
            case Kind::atomic:
                change(there, work.word, work);
                return;
            case Kind::fetch: {
                Result& result = results_[work.position % kSlots];
                result.value = change(there, work.word, work);
                device::atomicStore<device::Scope::system, device::Order::release>(&result.ticket, work.position + 1);
                return;
            }
            case Kind::fence:
                return;
        }
    }

    static void store(char* at, uint64_t value, uint64_t bytes) {
        using device::Order;
        using device::Scope;
        if (uint64_t(at) % bytes != 0 || bytes == 3) {
            memcpy(at, &value, bytes);
        } else if (bytes == 8) {
            device::atomicStore<Scope::system, Order::release>(reinterpret_cast<uint64_t*>(at), value);
        } else if (bytes == 4) {
            device::atomicStore<Scope::system, Order::release>(reinterpret_cast<uint32_t*>(at), uint32_t(value));
        } else if (bytes == 2) {
            device::atomicStore<Scope::system, Order::release>(reinterpret_cast<uint16_t*>(at), uint16_t(value));
        } else {
            device::atomicStore<Scope::system, Order::release>(reinterpret_cast<uint8_t*>(at), uint8_t(value));
        }
    }

    static uint64_t change(char* at, uint32_t word, const Work& work) {
        if (word == 4) {
            return exchange(reinterpret_cast<uint32_t*>(at), uint32_t(work.d.value), uint32_t(work.d.compare), Atomic(work.change));
        }
        return exchange(reinterpret_cast<uint64_t*>(at), work.d.value, work.d.compare, Atomic(work.change));
    }

    template <class Word>
    static Word exchange(Word* at, Word value, Word compare, Atomic change) {
        using device::Order;
        using device::Scope;
        while (true) {
            const Word seen = device::atomicLoad<Scope::system, Order::acquire>(at);
            Word made = seen;
            switch (change) {
                case Atomic::add:
                    made = seen + value;
                    break;
                case Atomic::bitAnd:
                    made = seen & value;
                    break;
                case Atomic::bitOr:
                    made = seen | value;
                    break;
                case Atomic::bitXor:
                    made = seen ^ value;
                    break;
                case Atomic::set:
                    made = value;
                    break;
                case Atomic::compareSwap:
                    made = seen == compare ? value : seen;
                    break;
                case Atomic::read:
                    return seen;
            }
            if (device::atomicCompareSwap<Scope::system, Order::acqRel>(at, seen, made) == seen) {
                return seen;
            }
        }
    }

    const std::vector<char*>& heaps_;
    uint64_t bytes_;
    char* local_;
    alignas(16) Command ring_[kSlots] = {};
    Detail details_[kSlots] = {};
    Result results_[kSlots] = {};
    State state_ = {};
    uint32_t busy_[kSlots] = {};
    std::atomic<uint64_t> trouble_{0};
    std::atomic<bool> serves_{false};
    std::thread thread_;
};

}  // namespace mori::proxy
