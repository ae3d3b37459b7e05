// SPDX-License-Identifier: MIT
// A reference NIC of the mlx5 family.
#pragma once

#include "nic_engine.hpp"

constexpr mori::nic::Provider kFamily = mori::nic::Provider::mlx5;

class ReferenceNic final : public NicEngine {
public:
    static constexpr uint64_t kRefused = 0x7713, kFlushed = 0x7705;  ///< statuses

    static constexpr uint64_t bytesOf(uint32_t sqLog) { return memoryOf(sqLog, 64, 0, 64); }

    /// The rings and records are in ``memory``, bytesOf(sqLog) of zeros on a cache line, which the device reaches by the same address.
    ReferenceNic(uint64_t seed, Manners manners, uint32_t sqLog, uint64_t start, void* memory)
        : NicEngine(seed, manners, sqLog, start, memory, 64, 0, 64) {
        mori::nic::Queue& queue = view_.queue;
        queue.provider = uint32_t(kFamily);
        queue.flags = (manners.collapsed ? mori::nic::kCollapsed : 0) | (manners.noDbr ? mori::nic::kNoDbr : 0);
        words_->dbr[1] = __builtin_bswap32(uint32_t(start & 0xffff));
        memset(reinterpret_cast<void*>(queue.cq), 0xff, entries() * 64);
        begin();
    }
    ~ReferenceNic() { end(); }

private:
    static constexpr uint32_t kNop = 0x00, kWriteOp = 0x08, kWriteImm = 0x09, kSendOp = 0x0a, kSendImm = 0x0b, kReadOp = 0x10, kCs = 0x11,
                              kFa = 0x12, kMaskedCs = 0x14, kMaskedFa = 0x15;

    uint64_t entries() const { return manners_.collapsed ? 1 : size_; }
    bool gathers() const override { return false; }

    bool look() override {
        const uint64_t bell = takeBell();
        if (bell != 0) {
            uint8_t bytes[8];
            memcpy(bytes, &bell, 8);
            require(big32(bytes + 4) >> 8 == view_.queue.qpn, "the doorbell names the queue");
            learn(manners_.noDbr ? uint16_t(big32(bytes) >> 8) : record());
            return true;
        }
        if (manners_.peeks && !manners_.noDbr) {
            learn(record());
            return true;
        }
        return false;
    }

    uint16_t record() {
        const uint32_t value = __atomic_load_n(&words_->dbr[1], __ATOMIC_ACQUIRE);
        require(__atomic_load_n(&words_->dbr[0], __ATOMIC_ACQUIRE) == 0, "the receive counter does not move");
        const uint32_t index = __builtin_bswap32(value);
        require(index <= 0xffff, "the send counter has 16 bits");
        return uint16_t(index);
    }

    void learn(uint16_t producer) {
        const uint64_t open = uint16_t(producer - uint16_t(next_));
        if (open >= 1u << 15) {
            return;  // an older doorbell than the last
        }
        require(open <= size_, "the producer stays within the ring");
        advance(open);
    }

    const uint8_t* segment(uint32_t number) const {
        return reinterpret_cast<const uint8_t*>(view_.queue.sq) + ((next_ + number / 4) % size_) * 64 + number % 4 * 16;
    }

    uint64_t decode(uint64_t open, Task& task) override {
        const uint8_t* const control = segment(0);
        const uint32_t word = big32(control), qpnDs = big32(control + 4), flags = big32(control + 8);
        require((word >> 8 & 0xffff) == (next_ & 0xffff), "an entry is written before it is published, where its index says");
        require(qpnDs >> 8 == view_.queue.qpn, "an entry names its queue");
        const uint32_t segments = qpnDs & 0x3f, opcode = word & 0xff;
        const uint64_t blocks = (segments + 3) / 4;
        require(blocks >= 1 && blocks <= open, "an entry has as many blocks as were published");
        task.kind = kindOf(opcode);
        task.signaled = (flags & 0x08) != 0;
        task.hasImmediate = opcode == kWriteImm || opcode == kSendImm;
        task.immediate = big32(control + 12);
        const uint32_t parts = task.kind == Task::send ? 1 : 2;
        if (task.kind == Task::nothing) {
            return blocks;
        }
        if (task.kind != Task::send) {
            task.remote = big64(segment(1));
            task.rkey = big32(segment(1) + 8);
        }
        if (task.kind == Task::write && segments > 2 && (big32(segment(2)) & 0x80000000) != 0) {
            inlined(task, segments);
            return blocks;
        }
        if (segments > parts) {
            const uint8_t* const data = segment(segments - 1);
            task.bytes = big32(data);
            task.lkey = big32(data + 4);
            task.local = big64(data + 8);
        }
        operands(task, opcode, word >> 24, segments);
        return blocks;
    }

    static Task::Kind kindOf(uint32_t opcode) {
        switch (opcode) {
            case kNop:
                return Task::nothing;
            case kWriteOp:
            case kWriteImm:
                return Task::write;
            case kSendOp:
            case kSendImm:
                return Task::send;
            case kReadOp:
                return Task::read;
            case kCs:
                return Task::compareSwap;
            case kFa:
                return Task::fetchAdd;
            case kMaskedCs:
                return Task::maskedCompareSwap;
            default:
                require(opcode == kMaskedFa, "an entry has an opcode");
                return Task::maskedFetchAdd;
        }
    }

    void inlined(Task& task, uint32_t segments) const {
        task.isInline = true;
        task.bytes = big32(segment(2)) & 0x7fffffff;
        require((task.bytes + 4 + 15) / 16 == segments - 2, "inline bytes fill their segments");
        for (uint32_t i = 0; i < task.bytes; i++) {
            task.data.push_back(segment(2 + (i + 4) / 16)[(i + 4) % 16]);
        }
    }

    void operands(Task& task, uint32_t opcode, uint32_t opmod, uint32_t segments) const {
        if (task.kind < Task::fetchAdd) {
            return;
        }
        const bool masked = opcode == kMaskedCs || opcode == kMaskedFa, wide = task.bytes == 8;
        require(segments == (opcode == kMaskedCs && wide ? 5 : 4), "an atomic entry's segments");
        require(opmod == (masked ? (wide ? 9u : 8u) : 0u), "the width of an atomic entry");
        const uint8_t* const a = segment(2);
        const uint8_t* const b = segment(3);
        task.value = wide ? big64(a) : big32(a);
        if (opcode == kMaskedFa) {
            task.valueMask = wide ? big64(a + 8) : big32(a + 4);
            return;
        }
        task.compare = wide ? big64(a + 8) : big32(a + 4);
        if (opcode == kMaskedCs) {
            task.valueMask = wide ? big64(b) : big32(a + 8);
            task.compareMask = wide ? big64(b + 8) : big32(a + 12);
        }
    }

    void complete(uint64_t first, uint64_t, Fault fault) override {
        if (!manners_.collapsed) {
            const uint32_t consumed = __builtin_bswap32(__atomic_load_n(reinterpret_cast<uint32_t*>(&words_->cqDbr), __ATOMIC_ACQUIRE));
            require(((completions_ - consumed) & 0xffffff) < entries(), "there is room for a completion");
        }
        const uint32_t syndrome = fault == Fault::none ? 0 : fault == Fault::local ? 0x04 : fault == Fault::remote ? 0x13 : 0x05;
        uint8_t bytes[64] = {};
        bytes[54] = syndrome == 0 ? 0 : 0x77;
        bytes[55] = uint8_t(syndrome);
        bytes[60] = uint8_t(first >> 8);
        bytes[61] = uint8_t(first);
        bytes[63] = uint8_t((syndrome == 0 ? 0 : 13) << 4 | (completions_ / entries() & 1));
        writeCompletion(reinterpret_cast<uint8_t*>(view_.queue.cq) + completions_ % entries() * 64, bytes, 60, 52);
    }
};
