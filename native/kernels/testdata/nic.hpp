// SPDX-License-Identifier: MIT
// A NIC of the mlx5 family, as slow and as obvious as can be: a thread that reads a queue of the device's as a NIC may, which by
// its seed is early, late, in another order, or all of it. What the device may not do ends the program. It reads and writes memory
// as ordinary threads do, so that the thread sanitizer sees what the device has not ordered.
#pragma once

#include <pthread.h>
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
inline void step() {
    thread_local uint64_t state = stepSeed.fetch_add(0x9e3779b97f4a7c15) | 1;
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

struct Region {
    uint32_t key;
    uint8_t* memory;
    uint64_t bytes;
};

/// What a NIC may do; a seed picks.
struct Manners {
    explicit Manners(uint64_t seed) {
        std::mt19937_64 random(seed);
        peeks = random() % 2 == 0;
        noDbr = random() % 4 == 0;
        collapsed = random() % 4 == 0;
        relaxed = random() % 2 == 0;
        slow = random() % 2 == 0;
    }
    bool peeks;      ///< reads the doorbell record though nobody rang
    bool noDbr;      ///< takes the producer index from the doorbell
    bool collapsed;  ///< has one completion entry
    bool relaxed;    ///< places the bytes of writes in any order
    bool slow;       ///< takes its time
    bool dead = false;  ///< does nothing
};

class ReferenceNic {
public:
    /// What a queue of that size takes, see the constructor.
    static constexpr uint64_t bytesOf(uint32_t sqLog) {
        return sizeof(Words) + 2 * ((uint64_t(64) << sqLog) + kGuard) + (uint64_t(4) << sqLog);
    }

    /// Counts begin at ``start``, as if so many blocks had been done. The rings and records are in ``memory``, bytesOf(sqLog) of zeros on a
    /// cache line, which the device reaches by the same address.
    ReferenceNic(uint64_t seed, Manners manners, uint32_t sqLog, uint64_t start, void* memory)
        : manners_(manners), random_(seed), size_(uint64_t(1) << sqLog), next_(start), words_(static_cast<Words*>(memory)) {
        const uint64_t entries = manners.collapsed ? 1 : size_;
        queue_ = {};
        queue_.sq = uint64_t(words_ + 1);
        queue_.cq = queue_.sq + size_ * 64 + kGuard;
        queue_.owners = queue_.cq + size_ * 64 + kGuard;
        queue_.dbr = uint64_t(words_->dbr);
        queue_.cqDbr = uint64_t(words_->cqDbr);
        queue_.uar = uint64_t(&words_->uar);
        queue_.sqLog = queue_.cqLog = sqLog;
        queue_.qpn = 0xabcdef;
        queue_.provider = uint32_t(mori::nic::Provider::mlx5);
        queue_.flags = (manners.collapsed ? mori::nic::kCollapsed : 0) | (manners.noDbr ? mori::nic::kNoDbr : 0);
        queue_.reserved = queue_.published = queue_.completed = start;
        words_->dbr[1] = __builtin_bswap32(uint32_t(start & 0xffff));
        memset(reinterpret_cast<void*>(queue_.cq), 0xff, entries * 64);
        if (!manners.dead) {
            thread_ = std::thread([this] { serve(); });
        }
    }
    ~ReferenceNic() {
        stop_ = true;
        if (thread_.joinable()) {
            thread_.join();
        }
        for (const uint64_t end : {queue_.sq + size_ * 64, queue_.cq + (manners_.collapsed ? 1 : size_) * 64}) {
            for (uint64_t i = 0; i < kGuard; i++) {
                require(reinterpret_cast<const uint8_t*>(end)[i] == 0, "nothing is written behind a ring");
            }
        }
    }

    void add(Region region) { regions_.push_back(region); }  // before the first post
    mori::nic::Queue* queue() { return &queue_; }

private:
    static constexpr uint64_t kGuard = 128;

    /// Each on a line of its own.
    struct Words {
        alignas(64) uint64_t uar;
        alignas(64) uint32_t dbr[2];
        alignas(64) uint32_t cqDbr[2];
    };

    static constexpr uint32_t kWriteOp = 0x08, kWriteImm = 0x09, kSendOp = 0x0a, kReadOp = 0x10, kCs = 0x11, kFa = 0x12,
                              kMaskedCs = 0x14, kMaskedFa = 0x15;

    void serve() {
        while (!stop_) {
            // A word of memory is no event: of two doorbells that are the same the second must be seen, too.
            const bool rung = __atomic_load_n(&words_->uar, __ATOMIC_RELAXED) != 0;
            const uint64_t bell = rung ? __atomic_exchange_n(&words_->uar, 0, __ATOMIC_ACQUIRE) : 0;
            if (bell != 0) {
                uint8_t bytes[8];
                memcpy(bytes, &bell, 8);
                require(big32(bytes + 4) >> 8 == queue_.qpn, "the doorbell names the queue");
                advance(manners_.noDbr ? uint16_t(big32(bytes) >> 8) : record());
            } else if (manners_.peeks && !manners_.noDbr) {
                advance(record());
            } else {
                sched_yield();
            }
            if (manners_.slow && random_() % 4 == 0) {
                usleep(random_() % 50);
            }
        }
    }

    uint16_t record() {
        const uint32_t value = __atomic_load_n(&words_->dbr[1], __ATOMIC_ACQUIRE);
        require(__atomic_load_n(&words_->dbr[0], __ATOMIC_ACQUIRE) == 0, "the receive counter does not move");
        const uint32_t index = big32(reinterpret_cast<const uint8_t*>(&value));
        require(index <= 0xffff, "the send counter has 16 bits");
        return uint16_t(index);
    }

    void advance(uint16_t producer) {
        uint64_t open = uint16_t(producer - uint16_t(next_));
        if (open >= 1u << 15) {
            return;  // an older doorbell than the last
        }
        require(open <= size_, "the producer stays within the ring");
        mori::device::fence<mori::device::Scope::system>();
        while (open > 0) {
            const uint64_t blocks = execute(open);
            require(blocks <= open, "an entry is published as a whole");
            open -= blocks;
        }
        flush();
        for (const Done& done : done_) {
            complete(done);
        }
        done_.clear();
    }

    struct Done {
        uint16_t index;
        uint32_t syndrome;
    };

    const uint8_t* segment(uint32_t number) const {
        return reinterpret_cast<const uint8_t*>(queue_.sq) + ((next_ + number / 4) % size_) * 64 + number % 4 * 16;
    }

    uint64_t execute(uint64_t open) {
        const uint8_t* const control = segment(0);
        const uint32_t word = big32(control), qpnDs = big32(control + 4), flags = big32(control + 8);
        require((word >> 8 & 0xffff) == (next_ & 0xffff), "an entry is written before it is published, where its index says");
        require(qpnDs >> 8 == queue_.qpn, "an entry names its queue");
        const uint32_t segments = qpnDs & 0x3f;
        const uint64_t blocks = (segments + 3) / 4;
        require(blocks >= 1 && blocks <= open, "an entry has as many blocks as were published");
        const uint32_t syndrome = broken_ ? 0x05 : perform(word & 0xff, word >> 24, segments);
        broken_ = broken_ || syndrome != 0;
        if ((flags & 0x08) != 0 || syndrome != 0) {
            done_.push_back({uint16_t(next_), syndrome});
        }
        next_ += blocks;
        return blocks;
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

    /// Returns a syndrome.
    uint32_t perform(uint32_t opcode, uint32_t opmod, uint32_t segments) {
        if (opcode == 0) {
            return 0;
        }
        const bool hasRemote = opcode != kSendOp;
        const uint32_t data = segments - 1;
        const uint64_t remote = big64(segment(1));
        const uint32_t rkey = big32(segment(1) + 8);
        uint32_t bytes = segments > (hasRemote ? 2u : 1u) ? big32(segment(data)) : 0;
        if ((big32(segment(2)) & 0x80000000) != 0 && (opcode == kWriteOp || opcode == kWriteImm) && segments > 2) {
            return inlined(remote, rkey, big32(segment(2)) & 0x7fffffff, segments);
        }
        uint8_t* const local = bytes == 0 ? nullptr : reach(big32(segment(data) + 4), big64(segment(data) + 8), bytes);
        if (bytes != 0 && local == nullptr) {
            return 0x04;
        }
        uint8_t* const there = hasRemote ? reach(rkey, remote, bytes) : nullptr;
        if (hasRemote && there == nullptr) {
            return 0x13;
        }
        switch (opcode) {
            case kWriteOp:
            case kWriteImm:
                place(there, local, bytes);
                return 0;
            case kReadOp:
                flush();
                place(local, there, bytes);
                return 0;
            case kSendOp:
                return 0;
            default:
                flush();
                return atomic(opcode, opmod, segments, there, local, bytes);
        }
    }

    uint32_t inlined(uint64_t remote, uint32_t rkey, uint32_t bytes, uint32_t segments) {
        require((bytes + 4 + 15) / 16 == segments - 2, "inline bytes fill their segments");
        uint8_t* const there = reach(rkey, remote, bytes);
        if (there == nullptr) {
            return 0x13;
        }
        std::vector<uint8_t> copy(bytes);
        for (uint32_t i = 0; i < bytes; i++) {
            copy[i] = segment(2 + (i + 4) / 16)[(i + 4) % 16];
        }
        place(there, copy.data(), bytes);
        return 0;
    }

    static uint64_t addInFields(uint64_t a, uint64_t b, uint64_t ends, uint32_t bits) {
        uint64_t sum = 0, carry = 0;
        for (uint32_t i = 0; i < bits; i++) {
            const uint64_t total = (a >> i & 1) + (b >> i & 1) + carry;
            sum |= (total & 1) << i;
            carry = (ends >> i & 1) != 0 ? 0 : total >> 1;
        }
        return sum;
    }

    uint32_t atomic(uint32_t opcode, uint32_t opmod, uint32_t segments, uint8_t* there, uint8_t* local, uint32_t bytes) {
        require(uint64_t(there) % bytes == 0, "words are aligned");
        require(segments == (opcode == kMaskedCs && bytes == 8 ? 5 : 4), "an atomic entry's segments");
        const bool masked = opcode == kMaskedCs || opcode == kMaskedFa;
        require(opmod == (masked ? (bytes == 4 ? 8u : 9u) : 0u), "the width of an atomic entry");
        const uint8_t* const a = segment(2);
        const uint8_t* const b = segment(3);
        uint64_t old = 0;
        memcpy(&old, there, bytes);
        uint64_t left = old;
        const uint64_t all = bytes == 4 ? 0xffffffff : ~uint64_t(0);
        if (opcode == kFa) {
            left = old + big64(a);
        } else if (opcode == kCs) {
            left = old == big64(a + 8) ? big64(a) : old;
        } else if (opcode == kMaskedFa) {
            left = bytes == 4 ? addInFields(old, big32(a), big32(a + 4), 32) : addInFields(old, big64(a), big64(a + 8), 64);
        } else {
            const uint64_t swap = bytes == 4 ? big32(a) : big64(a), compare = bytes == 4 ? big32(a + 4) : big64(a + 8);
            const uint64_t swapMask = bytes == 4 ? big32(a + 8) : big64(b);
            const uint64_t compareMask = bytes == 4 ? big32(a + 12) : big64(b + 8);
            left = ((old ^ compare) & compareMask & all) == 0 ? (old & ~swapMask) | (swap & swapMask) : old;
        }
        memcpy(local, &old, bytes);
        if (bytes == 8) {
            __atomic_store_n(reinterpret_cast<uint64_t*>(there), left, __ATOMIC_RELEASE);
        } else {
            __atomic_store_n(reinterpret_cast<uint32_t*>(there), uint32_t(left), __ATOMIC_RELEASE);
        }
        return 0;
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

    void complete(const Done& done) {
        const uint64_t entries = manners_.collapsed ? 1 : size_;
        if (!manners_.collapsed) {
            const uint32_t value = __atomic_load_n(&words_->cqDbr[0], __ATOMIC_ACQUIRE);
            const uint32_t consumed = big32(reinterpret_cast<const uint8_t*>(&value));
            require(((completions_ - consumed) & 0xffffff) < entries, "there is room for a completion");
        }
        uint8_t bytes[64] = {};
        bytes[54] = done.syndrome == 0 ? 0 : 0x77;
        bytes[55] = uint8_t(done.syndrome);
        bytes[60] = uint8_t(done.index >> 8);
        bytes[61] = uint8_t(done.index);
        bytes[63] = uint8_t((done.syndrome == 0 ? 0 : 13) << 4 | (completions_ / entries & 1));
        uint8_t* const entry = reinterpret_cast<uint8_t*>(queue_.cq) + completions_ % entries * 64;
        uint32_t word = 0;
        memcpy(&word, bytes + 52, 4);  // a device that reads the one entry of a collapsed queue may read it now
        __atomic_store_n(reinterpret_cast<uint32_t*>(entry + 52), word, __ATOMIC_RELAXED);
        memcpy(entry, bytes, 52);
        memcpy(entry + 56, bytes + 56, 4);
        if (manners_.slow) {
            usleep(random_() % 20);
        }
        memcpy(&word, bytes + 60, 4);
        __atomic_store_n(reinterpret_cast<uint32_t*>(entry + 60), word, __ATOMIC_RELEASE);
        completions_++;
    }

    Manners manners_;
    std::mt19937_64 random_;
    uint64_t size_;
    uint64_t next_;
    bool broken_ = false;
    uint64_t completions_ = 0;
    std::vector<Region> regions_;
    std::vector<Line> lines_;
    std::vector<Done> done_;
    Words* words_;
    mori::nic::Queue queue_{};
    std::atomic<bool> stop_{false};
    std::thread thread_;
};
