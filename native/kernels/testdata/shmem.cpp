// SPDX-License-Identifier: MIT
// Runs the device's symmetric memory on the CPU: puts, gets, signals, barriers, and what cannot be done.
#include "job.hpp"

#include <sys/mman.h>
#include <sys/wait.h>

#include <memory>

using mori::device::blockSync;
using mori::device::laneInWarp;
using mori::device::threadInBlock;
using mori::device::warpInBlock;

extern "C" {
void mori_shmem_barrier();
int mori_shmem_put_uint32_nbi_block(uint64_t dest, uint64_t source, uint64_t count, int pe, int qp);
int mori_shmem_getmem_thread(uint64_t dest, uint64_t source, uint64_t count, int pe, int qp);
int mori_shmem_barrier_all_block();
int mori_shmem_double_p(uint64_t dest, double value, int pe, int qp);
int mori_shmem_int64_atomic_add_thread(uint64_t dest, int64_t value, int pe, int qp);
int64_t mori_shmem_int64_wait_until_greater_than(uint64_t addr, int64_t value);
}

namespace {

char byteOf(int pe, uint64_t i) { return char(pe * 37 + i * 11 + 1); }

/// Each PE writes into the memory of every PE, itself included, and all look after a barrier.
void everyoneToEveryone() {
    constexpr uint64_t kEach = 1003;
    constexpr uint64_t kGot = 32768;
    Job here;
    job = &here;
    here.run([&] {
        std::vector<char> source(kEach);
        for (uint64_t i = 0; i < kEach; i++) {
            source[i] = byteOf(ShmemMyPe(), i);
        }
        for (int pe = 0; pe < kPes; pe++) {
            char* const to = here.mine(uint64_t(ShmemMyPe()) * 3 * kEach);
            ShmemPutMemNbiBlock(to, here.mine(0), 0, pe);  // nothing
            if (warpInBlock() == 0) {
                // The lanes' sources have equal bytes.
                ShmemPutMemNbiWarp(to, source.data(), kEach, pe);
            }
            ShmemPutUint8NbiBlock(reinterpret_cast<uint8_t*>(to + kEach), reinterpret_cast<uint8_t*>(source.data()), kEach, pe);
            if (threadInBlock() == 5) {
                ShmemPutMemNbiThread(to + 2 * kEach, source.data(), kEach, pe);
            }
        }
        ShmemBarrierAllBlock();
        for (int pe = 0; pe < kPes; pe++) {
            for (uint64_t i = 0; i < 3 * kEach; i++) {
                require(here.mine(uint64_t(pe) * 3 * kEach)[i] == byteOf(pe, i % kEach), "what all PEs put is there");
            }
        }
        ShmemBarrierAllBlock();
        // Each fetches what its right neighbour has from PE 0, beside what it holds.
        const int right = (ShmemMyPe() + 1) % kPes;
        ShmemGetMemBlock(here.mine(kGot), here.mine(0), kEach, right);
        require(here.mine(kGot)[threadInBlock()] == byteOf(0, threadInBlock()), "what a block gets is there");
        require(memcmp(here.mine(kGot), here.mine(0), kEach) == 0, "all of it");
        blockSync();
    });
    require(here.commands() > 0, "the proxies were used");
}

/// Rounds of barriers: nobody sees a round that not all have begun.
template <class First, class Second>
void barriers(First first, Second second) {
    Job here;
    job = &here;
    here.run([&] {
        uint64_t* const round = reinterpret_cast<uint64_t*>(here.mine(0));
        for (uint64_t i = 1; i <= 20; i++) {
            if (threadInBlock() == 0) {
                ShmemPutUint64ImmNbiThread(round + ShmemMyPe(), i, (ShmemMyPe() + 1) % kPes);
            }
            first();
            require(round[(ShmemMyPe() + kPes - 1) % kPes] == i, "a barrier carries what was put before it");
            blockSync();
            second();
            blockSync();
        }
    });
}

void byThread() {
    if (threadInBlock() == 0) {
        ShmemBarrierAllThread();
    }
}

void allBarriers() {
    barriers([] { ShmemBarrierAllBlock(); }, byThread);
    const auto mixed = [] {
        if (ShmemMyPe() % 2 == 0) {
            byThread();
            blockSync();
        } else {
            ShmemBarrierAllBlock();
        }
    };
    barriers(mixed, mixed);
    const auto inRounds = [] {
        blockSync();
        if (threadInBlock() == 0) {
            internal::quietRemote(-1, -1);
        }
        internal::meetAllPes<Group::block, 1>();
    };
    barriers(inRounds, inRounds);  // as more PEs do than there are here
    Job here;
    job = &here;
    here.run([] { mori_shmem_barrier(); });  // what the host puts on a stream, once for all
}

/// A ring of messages, each with its signal: the payload is there when the signal is.
template <class Put>
void ring(Put put) {
    constexpr uint64_t kBytes = 517;
    Job here;
    job = &here;
    here.run([&] {
        uint64_t* const signal = reinterpret_cast<uint64_t*>(here.mine(8192));
        uint64_t* const taken = reinterpret_cast<uint64_t*>(here.mine(8192 + 128));
        const int next = (ShmemMyPe() + 1) % kPes;
        const int last = (ShmemMyPe() + kPes - 1) % kPes;
        for (uint64_t turn = 1; turn <= 10; turn++) {
            char* const source = here.mine(16384);
            for (uint64_t i = threadInBlock(); i < kBytes; i += kThreads) {
                source[i] = byteOf(ShmemMyPe(), i + turn);
            }
            blockSync();
            put(here.mine(0), source, kBytes, signal, turn, next);
            if (threadInBlock() == 0) {
                ShmemUint64WaitUntilEquals(signal, turn);
                for (uint64_t i = 0; i < kBytes; i++) {
                    require(here.mine(0)[i] == byteOf(last, i + turn), "the payload is there when its signal is");
                }
                ShmemUint64AtomicAddThread(taken, 1, last);  // it may send again
                require(ShmemUint64WaitUntilGreaterThan(taken, turn - 1) == turn, "the value that ended the wait");
            }
            blockSync();
        }
    });
}

void signals() {
    ring([](char* to, char* from, uint64_t bytes, uint64_t* signal, uint64_t turn, int pe) {
        ShmemPutMemNbiSignalBlock(to, from, bytes, signal, turn, AMO_SIGNAL_SET, pe);
    });
    ring([](char* to, char* from, uint64_t bytes, uint64_t* signal, uint64_t, int pe) {
        if (warpInBlock() == 1) {
            ShmemPutMemNbiSignalWarp(to, from, bytes, signal, 1, AMO_SIGNAL_ADD, pe);
        }
    });
    ring([](char* to, char* from, uint64_t bytes, uint64_t* signal, uint64_t turn, int pe) {
        if (threadInBlock() == 3) {
            ShmemPutMemNbiSignalThread(to, from, bytes, signal, turn, AMO_SIGNAL_SET, pe);
        }
    });
    Job here;  // a signal of each thread
    job = &here;
    here.run([&] {
        uint64_t* const signal = reinterpret_cast<uint64_t*>(here.mine(8192));
        ShmemPutMemNbiSignalBlock<false>(here.mine(0), here.mine(4096), 64, signal, 1, AMO_SIGNAL_ADD,
                                         (ShmemMyPe() + 1) % kPes);
        ShmemUint64WaitUntilEquals(signal, kThreads);
    });
}

void atomics() {
    Job here;
    job = &here;
    here.run([&] {
        uint32_t* const sum = reinterpret_cast<uint32_t*>(here.mine(0));
        int64_t* const least = reinterpret_cast<int64_t*>(here.mine(64));
        uint64_t* const bits = reinterpret_cast<uint64_t*>(here.mine(128));
        uint64_t* const owner = reinterpret_cast<uint64_t*>(here.mine(192));
        for (int pe = 0; pe < kPes; pe++) {
            ShmemUint32AtomicAddThread(sum, 2, pe);
            ShmemInt64AtomicAddWarp(least, -3, pe);
            ShmemAtomicUint64NonFetchThread(bits, uint64_t(1) << (ShmemMyPe() * kThreads + int(threadInBlock())), AMO_OR, pe);
            ShmemAtomicUint64FetchThread(owner, uint64_t(ShmemMyPe()) + 1, 0, AMO_COMPARE_SWAP, pe);
        }
        ShmemBarrierAllBlock();
        require(*sum == 2 * kPes * kThreads, "every thread has added");
        require(*least == -3 * kPes * int64_t(kThreads / mori::device::kWarpSize), "every warp has added once");
        require(*bits == (uint64_t(1) << (kPes * kThreads)) - 1, "every bit is set");
        require(*owner >= 1 && *owner <= kPes, "one exchange won");
        ShmemBarrierAllBlock();
        const uint32_t before = ShmemUint32AtomicFetchAddWarp(sum, 0, (ShmemMyPe() + 1) % kPes);
        require(before == 2 * kPes * kThreads, "all lanes get the old value");
        const uint64_t swapped = ShmemAtomicUint64FetchThread(bits, 7, 0, AMO_FETCH, ShmemMyPe());
        require(swapped == (uint64_t(1) << (kPes * kThreads)) - 1, "a fetch changes nothing");
    });
}

void addresses() {
    Job here;
    job = &here;
    here.run([&] {
        const SymmetricObject object{here.mine(256), 64};
        for (int pe = 0; pe < kPes; pe++) {
            const bool near = pe == ShmemMyPe() || (pe != kRemote && ShmemMyPe() != kRemote);
            require(ShmemPtrP2p(object, 8, pe) == (near ? uint64_t(here.heaps[pe]) + 264 : 0), "a peer's address");
        }
        require(ShmemPtrP2p(uint64_t(object.local), kPes) == 0, "no such PE");
        require(ShmemPtrP2p(uint64_t(object.local), -1) == 0, "no such PE");
        require(ShmemPtrP2p(uint64_t(here.heaps[ShmemMyPe()]) + kHeap, 0) == 0, "behind the heap");
        require(ShmemPtrP2p(uint64_t(&object), 0) == 0, "not symmetric");
        if (threadInBlock() == 0) {
            const uint16_t three[3] = {7, 8, 9};
            memcpy(here.mine(512) + 4, three, sizeof(three));
            ShmemPutTypeNbiThread<uint16_t>(object, 4, SymmetricObject{here.mine(512), 64}, 2, 3, ShmemMyPe());
            require(memcmp(here.mine(256) + 8, three, sizeof(three)) == 0, "offsets count elements");
        }
        require(ShmemMyPe() == int(blockInGrid()) && ShmemNPes() == kPes, "who and how many");
    });
}

/// The library of C names: counts are elements, values keep their bits.
void library() {
    Job here;
    job = &here;
    here.run([&] {
        const uint64_t base = uint64_t(here.mine(0));
        const int next = (ShmemMyPe() + 1) % kPes;
        const int last = (ShmemMyPe() + kPes - 1) % kPes;
        uint32_t* const words = reinterpret_cast<uint32_t*>(here.mine(1024));
        if (threadInBlock() == 0) {
            for (uint32_t i = 0; i < 100; i++) {
                words[i] = uint32_t(ShmemMyPe()) * 1000 + i;
            }
            mori_shmem_double_p(base + 4096, 0.5 + ShmemMyPe(), next, 0);
        }
        blockSync();
        mori_shmem_put_uint32_nbi_block(base, base + 1024, 100, next, 0);
        mori_shmem_barrier_all_block();
        const uint32_t* const came = reinterpret_cast<uint32_t*>(here.mine(0));
        require(came[99] == uint32_t(last) * 1000 + 99 && came[100] == 0, "a hundred words, no more");
        require(*reinterpret_cast<double*>(here.mine(4096)) == 0.5 + last, "a value from a register");
        if (threadInBlock() == 0) {
            mori_shmem_getmem_thread(base + 8192, base + 1024, 8, last, 0);
            require(*reinterpret_cast<uint32_t*>(here.mine(8196)) == uint32_t(last) * 1000 + 1, "what was got");
            mori_shmem_int64_atomic_add_thread(base + 5000, 5, next, 0);
            require(mori_shmem_int64_wait_until_greater_than(base + 5000, 4) == 5, "what was waited for");
        }
    });
}

/// Runs kernel in a process of its own, which it must end; returns what it reported.
template <class Kernel>
mori::device::WaitReport ended(Kernel kernel) {
    void* const shared =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const pid_t child = fork();
    if (child == 0) {
        Job here(20'000'000);
        job = &here;
        for (State& state : here.states) {
            state.report = static_cast<mori::device::WaitReport*>(shared);
        }
        internal::self = &here.states[1];
        mori::device::cpu::Block block(0, 1, mori::device::kWarpSize);
        mori::device::cpu::self = {0, &block};
        kernel(here);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    require(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 0), "the kernel ends with an error");
    mori::device::WaitReport report{};
    memcpy(&report, shared, sizeof(report));
    munmap(shared, 4096);
    return report;
}

void whatCannotBeDone() {
    auto report = ended([](Job& here) { ShmemUint32WaitUntilEquals(reinterpret_cast<uint32_t*>(here.mine(0)), 9); });
    require(report.ready == 1 && report.expected == 9 && report.seen == 0 && report.rank == 1, "a wait that gives up");
    report = ended([](Job& here) { internal::put<Group::thread>(here.mine(0), here.mine(0), 8, kPes, 0); });
    require(report.ready == 1 && report.rank == 1 && report.peer == kPes, "a put to a PE that does not exist");
    report = ended([](Job& here) { internal::get<Group::thread>(here.mine(0), here.heaps[1] + kHeap, 8, 0, 0); });
    require(report.ready == 1 && report.peer == 0, "a get from behind the heap");
    report = ended([](Job& here) {
        ShmemPutMemNbiThread(here.mine(0), here.mine(0), 8, kRemote);
        ShmemQuietThread();
    });
    require(report.ready == 1 && report.expected == 0 && report.seen == mori::proxy::kTimeout && report.peer == kRemote,
            "nobody serves the queue");
    report = ended([](Job& here) {
        here.hosts[1]->queue.waitLimit = 60'000'000'000;
        here.hosts[1]->break_(kRemote, 111);
        here.hosts[1]->start();
        ShmemPutMemNbiThread(here.mine(0), here.mine(0), 8, kRemote);
        ShmemQuietThread(kRemote);
    });
    require(report.ready == 1 && report.expected == 0 && report.seen == 111 && report.peer == kRemote, "the PE has an error");
    report = ended([](Job&) { ShmemBarrierAllThread(); });
    require(report.ready == 1 && report.expected == 1 && report.seen == 0 && report.peer == 0, "a barrier alone");
}

}  // namespace

int main() {
    whatCannotBeDone();  // forks, so before there are threads
    everyoneToEveryone();
    allBarriers();
    signals();
    atomics();
    addresses();
    library();
    puts("all ran");
    return 0;
}
