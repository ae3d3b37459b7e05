// SPDX-License-Identifier: MIT
// What reference NICs of all families have in common. One is as slow and as obvious as can be: a thread that reads a queue of the
// device's as a NIC may, which by its seed is early, late, in another order, or all of it. What the device may not do ends the program.
// It reads and writes memory as ordinary threads do, so that the thread sanitizer sees what the device has not ordered.
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

// Holds the device's threads, on the CPU, up where the order of what they do matters.
inline std::atomic<uint64_t> stepSeed{1};
inline thread_local uint64_t stepState = 0;  // 0: of the next seed
inline void step() {
    uint64_t& state = stepState;
    if (state == 0) {
        state = stepSeed.fetch_add(0x9e3779b97f4a7c15) | 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    if (state % 16 == 0) {
        usleep(useconds_t(state >> 40) % 60);
    } else if (state % 4 == 0) {
        sched_yield();
    }
}
#define MORI_NIC_STEP() step()

#include "mori/device/fence.hpp"
#include "mori/nic/queue.hpp"

inline void require(bool ok, const char* what) {
    if (!ok) {
        fprintf(stderr, "failed: %s\n", what);
        _exit(1);
    }
}

inline uint16_t big16(const uint8_t* at) { return uint16_t(at[0] << 8 | at[1]); }
inline uint32_t big32(const uint8_t* at) { return uint32_t(big16(at)) << 16 | big16(at + 2); }
inline uint64_t big64(const uint8_t* at) { return uint64_t(big32(at)) << 32 | big32(at + 4); }

template <class T>
T little(const uint8_t* at) {
    T value;
    memcpy(&value, at, sizeof(value));
    return value;
}

struct Region {
    uint32_t key;
    uint8_t* memory;
    uint64_t bytes;
};

/// What a NIC may do; a seed picks. What a family does not have it does not look at.
struct Manners {
    explicit Manners(uint64_t seed) {
        std::mt19937_64 random(seed);
        peeks = random() % 2 == 0;
        noDbr = random() % 4 == 0;
        collapsed = random() % 4 == 0;
        relaxed = random() % 2 == 0;
        slow = random() % 2 == 0;
        gathers = random() % 2 == 0;
        second = random() % 2 == 0;
    }
    bool peeks;      ///< mlx5: reads the doorbell record though nobody rang
    bool noDbr;      ///< mlx5: takes the producer index from the doorbell
    bool collapsed;  ///< mlx5: has one completion entry
    bool relaxed;    ///< places the bytes of writes in any order
    bool slow;       ///< takes its time
    bool gathers;    ///< bnxt, ionic: one completion tells of several entries that want one
    bool second;     ///< ionic: speaks version 2 of the formats
    bool dead = false;  ///< does nothing
    bool naps = false;  ///< sleeps while nothing is posted, as many beside each other must on few cores
};

/// What an entry asks for, whatever the family.
struct Task {
    enum Kind { nothing, write, read, send, fetchAdd, compareSwap, maskedFetchAdd, maskedCompareSwap } kind = nothing;
    bool signaled = false;
    uint64_t remote = 0;
    uint32_t rkey = 0;
    uint64_t local = 0;
    uint32_t lkey = 0;
    uint64_t bytes = 0;
    bool isInline = false;
    std::vector<uint8_t> data;  ///< if it is inline
    uint64_t value = 0, compare = 0, valueMask = 0, compareMask = 0;
    bool hasImmediate = false;
    uint32_t immediate = 0;
};

enum class Fault { none, local, remote, flushed };

class NicEngine {
public:
    void add(Region region) { regions_.push_back(region); }  // before the first post
    mori::nic::Queue* queue() { return &view_.queue; }
    /// Sums of what came with writes, and of the bytes of sends.
    uint64_t immediates() const { return immediates_; }
    uint64_t sent() const { return sent_; }

protected:
    static constexpr uint64_t kGuard = 128;

    /// Each on a line of its own.
    struct Words {
        alignas(64) uint64_t uar;
        alignas(64) uint32_t dbr[2];
        alignas(64) uint64_t cqDbr;
    };

    /// What a queue takes whose ring has blocks of that size, with so many bytes of its own behind the ring.
    static constexpr uint64_t memoryOf(uint32_t sqLog, uint64_t block, uint64_t behind, uint64_t cqe) {
        return sizeof(Words) + (block << sqLog) + behind + (cqe << sqLog) + 2 * kGuard + (uint64_t(4) << sqLog);
    }

    /// Counts begin at ``start``, as if so many blocks had been done.
    NicEngine(uint64_t seed, Manners manners, uint32_t sqLog, uint64_t start, void* memory, uint64_t block, uint64_t behind, uint64_t cqe)
        : manners_(manners), random_(seed), size_(uint64_t(1) << sqLog), next_(start), words_(static_cast<Words*>(memory)) {
        mori::nic::Queue& queue = view_.queue;
        queue.sq = uint64_t(words_ + 1);
        queue.cq = queue.sq + size_ * block + behind + kGuard;
        queue.kept = queue.cq + size_ * cqe + kGuard;
        queue.dbr = uint64_t(words_->dbr);
        queue.cqDbr = uint64_t(&words_->cqDbr);
        queue.uar = uint64_t(&words_->uar);
        queue.sqLog = queue.cqLog = sqLog;
        queue.qpn = 0xabcdef;
        queue.mtu = 64;
        queue.reserved = queue.published = queue.completed = start;
        guards_ = {queue.cq - kGuard, queue.kept - kGuard};
    }
    ~NicEngine() {
        for (const uint64_t guard : guards_) {
            for (uint64_t i = 0; i < kGuard; i++) {
                require(reinterpret_cast<const uint8_t*>(guard)[i] == 0, "nothing is written behind a ring");
            }
        }
    }

    void begin() {
        if (!manners_.dead) {
            thread_ = std::thread([this] { serve(); });
        }
    }
    void end() {
        stop_ = true;
        if (thread_.joinable()) {
            thread_.join();
        }
    }

    /// Looks at the doorbells, and at the entries that they tell of; false if there was nothing.
    virtual bool look() = 0;
    /// Takes apart the entry at next_, of ``open`` blocks at most; returns how many it has.
    virtual uint64_t decode(uint64_t open, Task& task) = 0;
    virtual void complete(uint64_t first, uint64_t behind, Fault fault) = 0;

    /// Takes what the doorbell holds. A word of memory is no event: of two doorbells that are the same the second must be seen, too.
    uint64_t takeBell() {
        return __atomic_load_n(&words_->uar, __ATOMIC_RELAXED) != 0 ? __atomic_exchange_n(&words_->uar, 0, __ATOMIC_ACQUIRE) : 0;
    }

    void advance(uint64_t open) {
        mori::device::fence<mori::device::Scope::system>();
        while (open > 0) {
            Task task;
            const uint64_t blocks = decode(open, task);
            require(blocks >= 1 && blocks <= open, "an entry is published as a whole");
            const Fault fault = broken_ ? Fault::flushed : perform(task);
            broken_ = broken_ || fault != Fault::none;
            if (task.signaled || fault != Fault::none) {
                done_.push_back({next_, next_ + blocks, fault});
            }
            next_ += blocks;
            open -= blocks;
        }
        flush();
        for (size_t i = 0; i < done_.size(); i++) {
            const bool told = i + 1 < done_.size() && done_[i].fault == Fault::none && done_[i + 1].fault == Fault::none;
            if (!told || !gathers() || random_() % 2 == 0) {
                complete(done_[i].first, done_[i].behind, done_[i].fault);
            }
        }
        done_.clear();
    }

    virtual bool gathers() const { return manners_.gathers; }

    /// Writes a completion: the word at ``lastAt`` after all others, maybe much later. The one at ``anyTime`` the device may read
    /// meanwhile.
    template <size_t kBytes>
    void writeCompletion(uint8_t* entry, const uint8_t (&bytes)[kBytes], size_t lastAt, size_t anyTime) {
        for (size_t at = 0; at < kBytes; at += 4) {
            if (at == anyTime && at != lastAt) {
                __atomic_store_n(reinterpret_cast<uint32_t*>(entry + at), little<uint32_t>(bytes + at), __ATOMIC_RELAXED);
            } else if (at != lastAt) {
                memcpy(entry + at, bytes + at, 4);
            }
        }
        if (manners_.slow) {
            usleep(random_() % 20);
        }
        __atomic_store_n(reinterpret_cast<uint32_t*>(entry + lastAt), little<uint32_t>(bytes + lastAt), __ATOMIC_RELEASE);
        completions_++;
    }

    struct View {
        mori::nic::Queue queue{};
        mori::nic::Annex annex{};
    };
    static_assert(offsetof(View, annex) == sizeof(mori::nic::Queue));

    Manners manners_;
    std::mt19937_64 random_;
    uint64_t size_;
    uint64_t next_;
    uint64_t completions_ = 0;
    Words* words_;
    View view_;

private:
    struct Done {
        uint64_t first, behind;
        Fault fault;
    };

    void serve() {
        for (uint32_t idle = 0; !stop_; idle++) {
            if (look()) {
                idle = 0;
            } else if (manners_.naps && idle > 50) {
                usleep(100);
            } else {
                sched_yield();
            }
            if (manners_.slow && random_() % 4 == 0) {
                usleep(random_() % 50);
            }
        }
    }

    uint8_t* reach(uint32_t key, uint64_t address, uint64_t bytes) const {
        for (const Region& region : regions_) {
            const uint64_t offset = address - uint64_t(region.memory);
            if (region.key == key && offset <= region.bytes && bytes <= region.bytes - offset) {
                return region.memory + offset;
            }
        }
        return nullptr;
    }

    Fault perform(const Task& task) {
        if (task.kind == Task::nothing) {
            return Fault::none;
        }
        const bool reads = task.bytes > 0 && !task.isInline;
        uint8_t* const local = reads ? reach(task.lkey, task.local, task.bytes) : nullptr;
        if (reads && local == nullptr) {
            return Fault::local;
        }
        uint8_t* const there = task.kind != Task::send ? reach(task.rkey, task.remote, task.bytes) : nullptr;
        if (task.kind != Task::send && there == nullptr) {
            return Fault::remote;
        }
        immediates_ += task.hasImmediate ? task.immediate : 0;
        switch (task.kind) {
            case Task::write:
                place(there, task.isInline ? task.data.data() : local, task.bytes);
                return Fault::none;
            case Task::read:
                flush();
                place(local, there, task.bytes);
                return Fault::none;
            case Task::send:
                for (uint64_t i = 0; i < task.bytes; i++) {
                    sent_ += local[i];
                }
                return Fault::none;
            default:
                flush();
                atomic(task, there, local);
                return Fault::none;
        }
    }

    static uint64_t addInFields(uint64_t a, uint64_t b, uint64_t ends, uint64_t bits) {
        uint64_t sum = 0, carry = 0;
        for (uint32_t i = 0; i < bits; i++) {
            const uint64_t total = (a >> i & 1) + (b >> i & 1) + carry;
            sum |= (total & 1) << i;
            carry = (ends >> i & 1) != 0 ? 0 : total >> 1;
        }
        return sum;
    }

    static uint64_t changed(const Task& task, uint64_t old) {
        switch (task.kind) {
            case Task::fetchAdd:
                return old + task.value;
            case Task::compareSwap:
                return old == task.compare ? task.value : old;
            case Task::maskedFetchAdd:
                return addInFields(old, task.value, task.valueMask, task.bytes * 8);
            default:
                return ((old ^ task.compare) & task.compareMask) == 0 ? (old & ~task.valueMask) | (task.value & task.valueMask) : old;
        }
    }

    static void atomic(const Task& task, uint8_t* there, uint8_t* local) {
        require(uint64_t(there) % task.bytes == 0, "words are aligned");
        uint64_t old = 0;
        memcpy(&old, there, task.bytes);
        const uint64_t left = changed(task, old);
        memcpy(local, &old, task.bytes);
        if (task.bytes == 8) {
            __atomic_store_n(reinterpret_cast<uint64_t*>(there), left, __ATOMIC_RELEASE);
        } else {
            __atomic_store_n(reinterpret_cast<uint32_t*>(there), uint32_t(left), __ATOMIC_RELEASE);
        }
    }

    struct Line {
        uint8_t* to;
        std::vector<uint8_t> bytes;
    };

    void place(uint8_t* to, const uint8_t* from, uint64_t bytes) {
        for (uint64_t at = 0; at < bytes;) {
            const uint64_t length = std::min<uint64_t>(64 - (uint64_t(to) + at) % 64, bytes - at);
            lines_.push_back({to + at, std::vector<uint8_t>(from + at, from + at + length)});
            at += length;
        }
        if (!manners_.relaxed) {
            flush();
        }
    }

    void flush() {
        if (manners_.relaxed) {
            std::shuffle(lines_.begin(), lines_.end(), random_);
        }
        for (const Line& line : lines_) {
            if (line.bytes.size() == 8 && uint64_t(line.to) % 8 == 0) {  // it may be a flag
                uint64_t word = 0;
                memcpy(&word, line.bytes.data(), 8);
                __atomic_store_n(reinterpret_cast<uint64_t*>(line.to), word, __ATOMIC_RELEASE);
            } else {
                memcpy(line.to, line.bytes.data(), line.bytes.size());
            }
        }
        lines_.clear();
    }

    bool broken_ = false;
    uint64_t immediates_ = 0;
    uint64_t sent_ = 0;
    std::vector<Region> regions_;
    std::vector<Line> lines_;
    std::vector<Done> done_;
    std::vector<uint64_t> guards_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};
