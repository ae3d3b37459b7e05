// SPDX-License-Identifier: MIT
// Runs the kernels that use a NIC on the CPU, against the reference NIC of nic.hpp under seeds of chaos: every byte is checked,
// and every rule that the device must keep. -DMORI_NIC_FAMILY=bnxt is for that family.
//
//     nic [FIRST_SEED [SEEDS [SECONDS]]]      so long waits last at most
#include "nic.hpp"
#include "threads.hpp"

#include MORI_NIC_KERNELS_FILE

using namespace mori::nic;
using mori::device::nanoseconds;

namespace {

uint64_t limit = 20'000'000'000;  // nanoseconds; it ends what would hang
constexpr uint32_t kBlocks = 2;
constexpr uint32_t kThreads = 8;
constexpr uint32_t kMostInline = NIC<kFamily>::kMostInline;
constexpr bool kHasMasked = kFamily == Provider::mlx5;

template <class Args>
void launch(void (*kernel)(Args), const Args& args, uint32_t blocks = kBlocks, uint32_t threads = kThreads) {
    ::launch(blocks, threads, [&] {
        stepState = 0;
        kernel(args);
    });
}

/// A NIC whose queue is in ordinary memory.
class Nic {
public:
    Nic(uint64_t seed, Manners manners, uint32_t sqLog, uint64_t start = 0)
        : memory_(ReferenceNic::bytesOf(sqLog)), nic_(seed, manners, sqLog, start, memory_.data()) {}
    ReferenceNic* operator->() { return &nic_; }
    ReferenceNic* get() { return &nic_; }

private:
    /// Zeros on a cache line.
    class Lines {
    public:
        explicit Lines(uint64_t bytes) : lines_(static_cast<uint8_t*>(aligned_alloc(64, (bytes + 63) / 64 * 64))) {
            memset(lines_, 0, (bytes + 63) / 64 * 64);
        }
        ~Lines() { free(lines_); }
        Lines(const Lines&) = delete;
        Lines& operator=(const Lines&) = delete;
        uint8_t* data() { return lines_; }

    private:
        uint8_t* lines_;
    };

    Lines memory_;
    ReferenceNic nic_;
};

struct Arena {
    Arena(uint32_t key, uint64_t bytes) : key(key), bytes(bytes), memory(static_cast<uint8_t*>(aligned_alloc(4096, bytes))) {
        memset(memory, 0, bytes);
    }
    ~Arena() { free(memory); }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    Region region() const { return {key, memory, bytes}; }
    Memory view() const { return {uint64_t(memory), bytes, key, key}; }
    uint64_t word(uint64_t at) const {
        uint64_t value = 0;
        memcpy(&value, memory + at, 8);
        return value;
    }

    uint32_t key;
    uint64_t bytes;
    uint8_t* memory;
};

// ---- lists of work ----

/// Each piece has a slot of its own in both memories: what it moves is at the slot's beginning.
constexpr uint64_t kSlot = 256;
constexpr uint64_t kPieces = 96;
constexpr uint64_t kShared = kPieces * kSlot;  ///< words that several pieces change: a count, a sum in fields
constexpr uint64_t kArena = kShared + 4096;

struct Expected {
    uint64_t offset;
    std::vector<uint8_t> bytes;
    bool remote;  ///< in the peer's memory, else in this side's
};

class List {
public:
    List(uint64_t seed, Arena& mine, Arena& peer) : random_(seed), mine_(mine), peer_(peer) {
        for (uint64_t i = 0; i < kShared; i++) {
            mine.memory[i] = uint8_t(random_());
            peer.memory[i] = uint8_t(random_());
        }
        for (uint64_t i = 0; i < kPieces; i++) {
            add(i * kSlot);
        }
    }

    void check() {
        for (const Expected& expected : expected_) {
            const uint8_t* const there = (expected.remote ? peer_ : mine_).memory + expected.offset;
            require(std::equal(expected.bytes.begin(), expected.bytes.end(), there), "every byte is where it belongs");
        }
        require(peer_.word(kShared) == count_, "every count is there");
        require(peer_.word(kShared + 8) == fields_, "fields carry nothing into each other");
    }

    void check(ReferenceNic& nic) const {
        require(nic.immediates() == immediates_, "immediate values come along");
        require(nic.sent() == sent_, "sends have their bytes");
    }

    std::vector<Work> work;

private:
    void expect(uint64_t offset, const void* bytes, uint64_t count, bool remote) {
        const uint8_t* const from = static_cast<const uint8_t*>(bytes);
        expected_.push_back({offset, {from, from + count}, remote});
    }

    void add(uint64_t slot) {
        const Memory mine = mine_.view(), peer = peer_.view();
        const uint8_t* const here = mine_.memory + slot;
        const uint8_t* const there = peer_.memory + slot;
        const uint64_t bytes = random_() % 200;
        const uint64_t value = random_(), old = peer_.word(slot);
        switch (random_() % (kHasMasked ? 10 : 7)) {
            case 0:
                work.push_back(mori::nic::write(peer, slot, mine, slot, bytes));
                expect(slot, here, bytes, true);
                break;
            case 1:
                work.push_back(mori::nic::read(peer, slot, mine, slot, bytes));
                expect(slot, there, bytes, false);
                break;
            case 2:
                work.push_back(writeInline(peer, slot + 3, here, bytes % (kMostInline + 1)));
                expect(slot + 3, here, bytes % (kMostInline + 1), true);
                break;
            case 3:
                work.push_back(writeValue(peer, slot, value, 1 + bytes % 8));
                expect(slot, &value, 1 + bytes % 8, true);
                break;
            case 4:
                work.push_back(fetchAdd(peer, kShared, mine, slot, value));
                count_ += value;
                break;
            case 5: {
                const bool same = bytes % 2 == 0;
                work.push_back(compareSwap(peer, slot, mine, slot, same ? old : ~old, value));
                expect(slot, same ? &value : &old, 8, true);
                expect(slot, &old, 8, false);
                break;
            }
            case 6:
                work.push_back(send(mine, slot, bytes));
                for (uint64_t i = 0; i < bytes; i++) {
                    sent_ += here[i];
                }
                break;
            case 7: {  // 5 segments: an entry of two blocks
                const uint64_t compareMask = random_(), swapMask = random_();
                const uint64_t left = (old & ~swapMask) | (value & swapMask);
                work.push_back(maskedCompareSwap(peer, slot, mine, slot, old ^ ~compareMask, compareMask, value, swapMask, 8));
                expect(slot, &left, 8, true);
                expect(slot, &old, 8, false);
                break;
            }
            case 8: {
                const uint32_t mask = uint32_t(random_()), left = (uint32_t(old) & ~mask) | (uint32_t(value) & mask);
                work.push_back(maskedCompareSwap(peer, slot, mine, slot, uint32_t(old), 0xffffffff, value, mask, 4));
                expect(slot, &left, 4, true);
                break;
            }
            default: {  // eight bytes of 1 each, which wrap by themselves
                const uint64_t ends = 0x8080808080808080;
                work.push_back(maskedFetchAdd(peer, kShared + 8, mine, slot, value, ends, 8));
                fields_ = ((fields_ & ~ends) + (value & ~ends)) ^ ((fields_ ^ value) & ends);
            }
        }
        if (random_() % 8 == 0) {
            work.back().flags |= kFenced;
        }
        const Kind kind = work.back().kind;
        if (random_() % 4 == 0 && (kind == Kind::write || kind == Kind::writeInline || kind == Kind::writeValue || kind == Kind::send)) {
            work.back().flags |= kImmediate | (random_() % 2 != 0 ? kSolicited : 0);
            work.back().immediate = uint32_t(random_());
            immediates_ += work.back().immediate;
        }
    }

    std::mt19937_64 random_;
    Arena& mine_;
    Arena& peer_;
    std::vector<Expected> expected_;
    uint64_t count_ = 0;
    uint64_t fields_ = 0;
    uint64_t immediates_ = 0;
    uint64_t sent_ = 0;
};

void lists(uint64_t seed) {
    for (const Posters posters : {Posters::thread, Posters::warp, Posters::block, Posters::lanes}) {
        Arena mine(0x1001, kArena + 4096 - kArena % 4096), peer(0x2002, kArena + 4096 - kArena % 4096);
        List list(seed, mine, peer);
        const uint64_t start = 65536 * (seed % 3) + 65536 - seed % 80;  // the index's 16 bits wrap
        Nic nic(seed, Manners(seed), 3 + seed % 3, start);
        nic->add(mine.region());
        nic->add(peer.region());
        Outcome outcome{};
        const PostArgs args{nic->queue(), &outcome, limit, list.work.data(), list.work.size(), posters, uint32_t(seed % 4)};
        launch(mori_nic_post, args);
        require(outcome.status == kOk && outcome.report.count == 0, "no post and no wait fails");
        require(outcome.done == list.work.size(), "all is posted");
        require(nic->queue()->completed == nic->queue()->reserved, "all is done");
        list.check();
        list.check(*nic.get());
    }
}

// ---- the other kernels ----

void interchange(uint64_t seed) {
    Arena mine(7, 4096), peer(8, 4096);
    Nic nic(seed, Manners(seed), 4);
    nic->add(mine.region());
    nic->add(peer.region());
    Outcome outcome{};
    launch(mori_nic_interchange, InterchangeArgs{nic->queue(), &outcome, limit, mine.view(), peer.view(), 1024, 20, 42, 0});
    require(outcome.status == kOk && outcome.done == 20 * kBlocks, "every block makes all rounds");
    launch(mori_nic_verify, VerifyArgs{peer.memory, &outcome, 1024, 42});
    require(outcome.wrong == 0 && peer.memory[1024] == 0, "1024 bytes are 42, and no byte more");
    launch(mori_nic_verify, VerifyArgs{peer.memory, &outcome, 1030, 42});
    require(outcome.wrong == 6, "wrong bytes are counted");
}

void pingPong(uint64_t seed, bool atomic) {
    Arena sent[2] = {{1, 4096}, {2, 4096}}, inbox[2] = {{3, 4096}, {4, 4096}};
    Manners manners(seed);
    manners.relaxed = manners.relaxed && atomic;  // a flag that is written needs a network in order
    Nic one(seed, manners, 4), two(seed + 1, manners, 4);
    Nic* const nics[2] = {&one, &two};
    Outcome outcomes[2] = {};
    std::vector<std::thread> sides;
    for (int side = 0; side < 2; side++) {
        (*nics[side])->add(sent[side].region());
        (*nics[side])->add(inbox[1 - side].region());
    }
    for (int side = 0; side < 2; side++) {
        const PingPongArgs args{(*nics[side])->queue(), &outcomes[side], limit, sent[side].view(), inbox[side].view(),
                                inbox[1 - side].view(), 2048, 300, 12, side == 0, atomic};
        sides.emplace_back([args] { launch(mori_nic_ping_pong, args, 1); });
    }
    for (std::thread& side : sides) {
        side.join();
    }
    for (const Outcome& outcome : outcomes) {
        require(outcome.status == kOk && outcome.done == 12, "all rounds are made");
        require(outcome.wrong == 0, "who sees the flag sees the payload");
    }
}

// ---- trouble ----

void refusedByTheNic(uint64_t seed) {
    Arena mine(1, 4096), peer(2, 4096);
    Manners manners(seed);
    Nic nic(seed, manners, 4);
    nic->add(mine.region());
    nic->add({2, peer.memory, 1024});  // a part of it
    std::vector<Work> work(40, mori::nic::write(peer.view(), 0, mine.view(), 0, 16));
    work[17] = mori::nic::write(peer.view(), 1020, mine.view(), 0, 16);
    Outcome outcome{};
    launch(mori_nic_post, PostArgs{nic->queue(), &outcome, limit, work.data(), work.size(), Posters::thread, 0});
    require(outcome.status == ReferenceNic::kRefused || (manners.collapsed && outcome.status == ReferenceNic::kFlushed), "the syndrome is told");
    require(outcome.report.count == 0, "nobody waits until the limit");
    require(peer.memory[1020] == 0, "nothing is written outside");
    launch(mori_nic_post, PostArgs{nic->queue(), &outcome, limit, work.data(), 1, Posters::block, 0});
    require(nic->queue()->status == outcome.status, "the queue stays dead");
}

void nobodyThere(uint64_t seed) {
    Arena mine(1, 4096), peer(2, 4096);
    Manners manners(seed);
    manners.dead = true;
    Nic nic(seed, manners, 4);
    const uint64_t room = NIC<kFamily>::room(*nic->queue());
    std::vector<Work> work(room, mori::nic::write(peer.view(), 0, mine.view(), 0, 16));
    Outcome outcome{};
    launch(mori_nic_post, PostArgs{nic->queue(), &outcome, 20'000'000, work.data(), room, Posters::block, 0}, 1);
    require(outcome.status == kTimedOut && nic->queue()->status == kOk, "a wait for completions ends, and the queue goes on");
    require(outcome.report.ready == 1 && outcome.report.expected == room && outcome.report.seen == 0, "the report tells why");
    outcome = {};
    launch(mori_nic_post, PostArgs{nic->queue(), &outcome, 20'000'000, work.data(), 2, Posters::thread, 0}, 1);
    require(outcome.status == kStalled && nic->queue()->status == kStalled, "a wait for room ends the queue");
    require(outcome.report.address == uint64_t(&nic->queue()->completed), "and tells for what");
}

void impossible(uint64_t seed) {
    Arena mine(1, 4096), peer(2, 4096);
    Nic nic(seed, Manners(seed), 4);
    std::vector<Work> refused{writeInline(peer.view(), 0, mine.memory, kMostInline + 1),
                              mori::nic::write(peer.view(), 0, mine.view(), 0, kMostBytes + 1), writeValue(peer.view(), 0, 1, 9),
                              maskedFetchAdd(peer.view(), 0, mine.view(), 0, 1, 0, 2)};
    if (!kHasMasked) {
        refused.push_back(maskedFetchAdd(peer.view(), 0, mine.view(), 0, 1, 0, 8));
        refused.push_back(maskedCompareSwap(peer.view(), 0, mine.view(), 0, 1, 1, 1, 1, 4));
    }
    if (kFamily == Provider::ionic) {
        refused.push_back(with(mori::nic::write(peer.view(), 0, mine.view(), 0, 16), kSolicited));
    }
    for (const Work& work : refused) {
        for (const Posters posters : {Posters::block, Posters::lanes}) {
            Outcome outcome{};
            launch(mori_nic_post, PostArgs{nic->queue(), &outcome, limit, &work, 1, posters, 0});
            require(outcome.status == kRefused && nic->queue()->status == kOk, "what no entry can tell of harms nothing");
            require(nic->queue()->reserved == 0, "and takes no place");
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    const uint64_t first = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1;
    const uint64_t seeds = argc > 2 ? strtoull(argv[2], nullptr, 10) : 20;
    limit = argc > 3 ? strtoull(argv[3], nullptr, 10) * 1'000'000'000 : limit;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        stepSeed = seed * 7919;
        lists(seed);
        interchange(seed);
        pingPong(seed, true);
        pingPong(seed, false);
        refusedByTheNic(seed);
        nobodyThere(seed);
        impossible(seed);
    }
    puts("all ran");
    return 0;
}
