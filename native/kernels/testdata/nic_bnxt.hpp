// SPDX-License-Identifier: MIT
// A reference NIC of the bnxt family. It takes entries apart by numbers of its own, so that both sides would have to be wrong in the
// same way: rdma-core, providers/bnxt_re/bnxt_re-hsi.h has the names.
#pragma once

#include "nic_engine.hpp"

constexpr mori::nic::Provider kFamily = mori::nic::Provider::bnxt;

class ReferenceNic final : public NicEngine {
public:
    static constexpr uint64_t kRefused = 0x0007, kFlushed = kRefused;  ///< BNXT_RE_REQ_ST_REM_ACC; nothing tells of what is flushed

    static constexpr uint64_t bytesOf(uint32_t sqLog) { return memoryOf(sqLog, 128, uint64_t(8) << sqLog, 32); }

    ReferenceNic(uint64_t seed, Manners manners, uint32_t sqLog, uint64_t start, void* memory)
        : NicEngine(seed, manners, sqLog, start, memory, 128, uint64_t(8) << sqLog, 32), psn_((0xfffff0 + seed * 7) & 0xffffff) {
        view_.queue.qpn = 0xbcdef;
        view_.queue.provider = uint32_t(kFamily);
        view_.queue.dbr = 0;
        view_.annex.msn = view_.queue.sq + size_ * 128;
        view_.annex.cqn = 0x54321;
        view_.annex.spare = 1 + uint32_t(seed % 3);
        view_.annex.psn = psn_;
        begin();
    }
    ~ReferenceNic() { end(); }

private:
    /// Of a doorbell: the count modulo two laps.
    uint64_t countOf(uint64_t bell, uint32_t number, uint32_t type) const {
        const uint32_t low = uint32_t(bell), high = uint32_t(bell >> 32);
        require((high & 0xfffff) == number, "the doorbell names the queue");
        require(high >> 28 == type && (high >> 24 & 0xf) == 4, "the doorbell is valid, and of its type");
        require((low & 0xffffff) < size_ && low >> 25 == 0, "the doorbell has an index of the ring");
        return (low & 0xffffff) + (low >> 24) * size_;
    }

    bool look() override {
        const uint64_t bell = takeBell();
        if (bell == 0) {
            return false;
        }
        const uint64_t open = (countOf(bell, view_.queue.qpn, 0) - next_) % (2 * size_);
        require(open <= size_ - view_.annex.spare, "the producer stays within the ring, in its lap");
        advance(open);
        return true;
    }

    const uint8_t* slot(uint32_t number) const {
        return reinterpret_cast<const uint8_t*>(view_.queue.sq) + next_ % size_ * 128 + number * 16;
    }

    uint64_t decode(uint64_t, Task& task) override {
        const uint32_t word = little<uint32_t>(slot(0)), opcode = word & 0xff, flags = word >> 8 & 0xff, slots = word >> 16 & 0xff;
        require(slots >= 2 && slots <= 8 && word >> 24 == 0, "an entry says how many slots it has");
        task.kind = kindOf(opcode);
        task.signaled = (flags & 0x01) != 0;
        task.isInline = (flags & 0x10) != 0;
        task.hasImmediate = opcode == 0x01 || opcode == 0x05;
        task.bytes = little<uint32_t>(slot(0) + 8);
        task.immediate = little<uint32_t>(slot(0) + 4);
        if (task.kind == Task::write || task.kind == Task::read) {
            task.remote = little<uint64_t>(slot(1));
            task.rkey = little<uint32_t>(slot(1) + 8);
        } else if (task.kind != Task::send) {
            task.bytes = 8;
            task.rkey = little<uint32_t>(slot(0) + 4);
            task.remote = little<uint64_t>(slot(0) + 8);
            task.value = little<uint64_t>(slot(1));
            task.compare = little<uint64_t>(slot(1) + 8);
        }
        if (task.isInline) {
            require(task.bytes > 0 && slots == 2 + (task.bytes + 15) / 16, "inline bytes fill their slots");
            task.data.assign(slot(2), slot(2) + task.bytes);
        } else if (task.bytes > 0) {
            require(slots == 3 && little<uint32_t>(slot(2) + 12) == task.bytes, "the data has the entry's length");
            task.local = little<uint64_t>(slot(2));
            task.lkey = little<uint32_t>(slot(2) + 8);
        }
        checkPackets(task.bytes);
        return 1;
    }

    static Task::Kind kindOf(uint32_t opcode) {
        switch (opcode) {
            case 0x00:
            case 0x01:
                return Task::send;
            case 0x04:
            case 0x05:
                return Task::write;
            case 0x06:
                return Task::read;
            case 0x08:
                return Task::compareSwap;
            default:
                require(opcode == 0x0b, "an entry has an opcode");
                return Task::fetchAdd;
        }
    }

    void checkPackets(uint64_t bytes) {
        const uint64_t row = little<uint64_t>(reinterpret_cast<const uint8_t*>(view_.annex.msn) + next_ % size_ * 8);
        const uint64_t packets = bytes == 0 ? 1 : (bytes + view_.queue.mtu - 1) / view_.queue.mtu;
        const uint64_t next = (psn_ + packets) & 0xffffff;
        require(row >> 48 == next_ % size_, "the table has the entry's index");
        require((row & 0xffffff) == psn_ && (row >> 24 & 0xffffff) == next, "the table has the entry's packets");
        psn_ = next;
    }

    void complete(uint64_t, uint64_t behind, Fault fault) override {
        if (fault == Fault::flushed) {
            return;
        }
        entry(0x00, fault == Fault::none ? 0 : fault == Fault::local ? 0x04 : 0x07, fault == Fault::none ? behind : random_());
        if (fault != Fault::none) {
            entry(0x0e, 0, random_());  // BNXT_RE_WC_TYPE_TERM
        }
    }

    void entry(uint32_t type, uint32_t status, uint64_t index) {
        const uint64_t bell = __atomic_load_n(&words_->cqDbr, __ATOMIC_ACQUIRE);
        const uint64_t consumed = bell == 0 ? 0 : countOf(bell, view_.annex.cqn, 4);
        require((completions_ - consumed) % (2 * size_) < size_, "there is room for a completion");
        const uint32_t words[8] = {uint32_t(random_()), uint32_t(random_()), uint32_t(index % size_), 0, 0, 0,
                                   uint32_t(random_()) << 16 | status << 8 | type << 1 | uint32_t(~(completions_ / size_) & 1), 0};
        uint8_t bytes[32];
        memcpy(bytes, words, 32);
        writeCompletion(reinterpret_cast<uint8_t*>(view_.queue.cq) + completions_ % size_ * 32, bytes, 24, 24);
    }

    uint64_t psn_;
};
