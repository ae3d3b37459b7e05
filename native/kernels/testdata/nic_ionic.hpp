// SPDX-License-Identifier: MIT
// A reference NIC of the ionic family. It takes entries apart by numbers of its own: rdma-core, providers/ionic/ionic_fw_types.h has the
// names.
#pragma once

#include "nic_engine.hpp"

constexpr mori::nic::Provider kFamily = mori::nic::Provider::ionic;

class ReferenceNic final : public NicEngine {
public:
    static constexpr uint64_t kRefused = 0x0209, kFlushed = kRefused;  ///< of a message: IONIC_STS_REMOTE_ACC_ERR

    static constexpr uint64_t bytesOf(uint32_t sqLog) { return memoryOf(sqLog, 64, 0, 32); }

    ReferenceNic(uint64_t seed, Manners manners, uint32_t sqLog, uint64_t start, void* memory)
        : NicEngine(seed, manners, sqLog, start, memory, 64, 0, 32) {
        view_.queue.provider = uint32_t(kFamily);
        view_.queue.dbr = 0;
        view_.annex.cqn = 0x654321;
        view_.annex.spare = 1 + uint32_t(seed % 3);
        view_.annex.version = manners.second ? 2 : 1;
        begin();
    }
    ~ReferenceNic() { end(); }

private:
    uint64_t indexOf(uint64_t bell, uint32_t number) const {
        require(bell >> 24 == number, "the doorbell names the queue");
        require((bell & 0xffffff) < size_, "the doorbell has an index of the ring");
        return bell & 0xffffff;
    }

    bool look() override {
        const uint64_t bell = takeBell();
        if (bell == 0) {
            return false;
        }
        const uint64_t open = (indexOf(bell, view_.queue.qpn) - next_) % size_;
        require(open <= size_ - view_.annex.spare, "the producer stays within the ring");
        advance(open);
        return true;
    }

    uint64_t decode(uint64_t, Task& task) override {
        const uint8_t* const entry = reinterpret_cast<const uint8_t*>(view_.queue.sq) + next_ % size_ * 64;
        const uint32_t flags = big16(entry + 10);
        require(little<uint64_t>(entry) == next_ % size_, "an entry is written before it is published, where its index says");
        require((flags >> 4 & 1) == (~(next_ / size_) & 1), "an entry has the colour of its lap");
        require(flags < 0x20, "an entry has no list of lengths");
        const uint8_t opcode = entry[8];
        task.kind = kindOf(opcode, task.hasImmediate);
        task.signaled = (flags & 0x08) != 0;
        task.isInline = (flags & 0x04) != 0;
        task.immediate = big32(entry + 12);
        task.remote = big64(entry + 16);
        task.rkey = big32(entry + 24);
        if (task.kind >= Task::fetchAdd) {
            require(entry[9] == 1 && !task.isInline, "an atomic entry has one piece of memory");
            atomic(task, entry);
            return 1;
        }
        task.bytes = big32(entry + 28);
        require(entry[9] == (task.isInline || task.bytes == 0 ? 0 : 1), "an entry says how many pieces of memory it has");
        if (task.isInline) {
            require(task.bytes <= 32, "inline bytes fit");
            task.data.assign(entry + 32, entry + 32 + task.bytes);
        } else if (task.bytes > 0) {
            task.local = big64(entry + 32);
            require(big32(entry + 40) == task.bytes, "the data has the entry's length");
            task.lkey = big32(entry + 44);
        }
        return 1;
    }

    void atomic(Task& task, const uint8_t* entry) const {
        task.bytes = 8;
        task.value = big64(entry + 28);
        task.compare = big64(entry + 36);
        task.local = big64(entry + 48);
        if (manners_.second) {
            task.lkey = big32(entry + 44);
            require(big64(entry + 56) == 0, "the room of an express doorbell is empty");
        } else {
            require(big32(entry + 56) == 8, "the data of an atomic entry has 8 bytes");
            task.lkey = big32(entry + 60);
        }
    }

    Task::Kind kindOf(uint8_t opcode, bool& immediate) const {
        struct {
            uint8_t first, second;
            Task::Kind kind;
            bool immediate;
        } const known[] = {
            {0, 0x20, Task::send, false}, {2, 0x60, Task::send, true}, {3, 0x02, Task::read, false},        {4, 0x21, Task::write, false},
            {5, 0x61, Task::write, true}, {6, 0x04, Task::compareSwap, false}, {7, 0x05, Task::fetchAdd, false},
        };
        for (const auto& one : known) {
            if ((manners_.second ? one.second : one.first) == opcode) {
                immediate = one.immediate;
                return one.kind;
            }
        }
        require(false, "an entry has an opcode of its version");
        return Task::nothing;
    }

    void complete(uint64_t, uint64_t behind, Fault fault) override {
        if (fault == Fault::flushed) {
            return;
        }
        entry(2, fault == Fault::none ? 0 : fault == Fault::local ? 3 : 9, fault == Fault::none ? behind : behind + random_() % 5);
        if (fault != Fault::none) {
            entry(3, 4, random_());  // IONIC_V1_CQE_TYPE_SEND_NPG, IONIC_STS_WQE_FLUSHED_ERR
        }
    }

    void entry(uint32_t type, uint32_t status, uint64_t msn) {
        const uint64_t bell = __atomic_load_n(&words_->cqDbr, __ATOMIC_ACQUIRE);
        consumed_ += bell == 0 ? 0 : (indexOf(bell, view_.annex.cqn) - consumed_) % size_;
        require(completions_ - consumed_ < size_, "there is room for a completion");
        const uint32_t words[8] = {uint32_t(random_()), __builtin_bswap32(uint32_t(msn & 0xffffff)), 0, 0, 0, 0, __builtin_bswap32(status),
                                   __builtin_bswap32(view_.queue.qpn << 8 | type << 5 | (status != 0 ? 2 : 0) |
                                                     uint32_t(~(completions_ / size_) & 1))};
        uint8_t bytes[32];
        memcpy(bytes, words, 32);
        writeCompletion(reinterpret_cast<uint8_t*>(view_.queue.cq) + completions_ % size_ * 32, bytes, 28, 28);
    }

    uint64_t consumed_ = 0;
};
