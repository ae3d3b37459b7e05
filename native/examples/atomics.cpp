// SPDX-License-Identifier: MIT
// Every thread of a kernel adds to one word of the other side, by its NIC: no two of them see the same value before. Then all try to take a
// lock there by compare and swap, which one of them gets.
//
//     make examples
//     build/examples/atomics --device emu0 --gpu cpu
//     build/examples/atomics --gpu cuda:0,cuda:1
//
// A NIC's atomic operations are atomic among those of that NIC, and nobody else may change the word.
#include "mori/nic/device.hpp"

namespace {

using namespace mori::nic;
constexpr Provider kNic = Provider::mlx5;

// Of the other side.
constexpr uint64_t kCounter = 0;
constexpr uint64_t kLock = 8;
// Of this side: what each thread's adds have seen, and at last its try for the lock.
constexpr uint64_t kAdds = 8;
constexpr uint64_t kOldBytes = 8 * (kAdds + 1);

struct AtomicsArgs {
    Queue* queue;
    Memory mine, peer;
    uint64_t limit;
    uint64_t* told;  // [0] why it failed, [1] how many threads there are
};

}  // namespace

/// One block. Each thread posts work of its own to the one queue and waits for it.
extern "C" MORI_DEVICE_KERNEL(256) void example_atomics(const AtomicsArgs args) {
    using namespace mori::device;
    const Channel channel{args.queue, args.limit, nullptr, 0, 1};
    const uint64_t mine = threadInBlock() * kOldBytes;
    uint64_t status = kOk;
    for (uint64_t i = 0; i < kAdds && status == kOk; i++) {
        const Posted added = post<kNic, Group::thread>(channel, fetchAdd(args.peer, kCounter, args.mine, mine + 8 * i, 1));
        status = quiet<kNic, Group::thread>(channel, added);
    }
    if (status == kOk) {
        const Work take = compareSwap(args.peer, kLock, args.mine, mine + 8 * kAdds, 0, threadInBlock() + 1);
        status = quiet<kNic, Group::thread>(channel, post<kNic, Group::thread>(channel, take));
    }
    if (status != kOk) {
        atomicStore<Scope::system, Order::relaxed>(&args.told[0], status);
    }
    if (threadInBlock() == 0) {
        args.told[1] = blockSize();
    }
}

#if defined(MORI_DEVICE_CPU) && !defined(MORI_ONLY_KERNELS)
#include <vector>

#include "host.hpp"

namespace {

struct Found {
    uint64_t threads, values, takers;
};

/// Counts the values that adds have seen, each once, and the threads that have the lock.
Found look(const example::Side& side, std::vector<uint64_t>& words, uint64_t threads, uint64_t lock) {
    side.fetch(0, words.data(), threads * kOldBytes);
    Found found{threads, 0, 0};
    std::vector<bool> seen(threads * kAdds);
    for (uint64_t t = 0; t < threads; t++) {
        const uint64_t* const old = &words[t * (kAdds + 1)];
        for (uint64_t i = 0; i < kAdds; i++) {
            if (old[i] < seen.size() && !seen[old[i]]) {
                seen[old[i]] = true;
                found.values++;
            }
        }
        found.takers += old[kAdds] == 0 && lock == t + 1 ? 1 : 0;
    }
    return found;
}

int adds(const example::Options& options) {
    example::Side sender(options["device"], options.gpu(0), "atomics", "example_atomics");
    example::Side receiver(options["device"], options.gpu(1), "atomics", "example_atomics");
    std::vector<uint64_t> words(example::kGpuThreads * (kAdds + 1));
    example::join(sender, receiver, words.size() * 8);
    receiver.fill(0, words.data(), words.size() * 8);  // zeros

    uint64_t* const told = sender.words<uint64_t>();
    sender.launch("example_atomics", example_atomics, AtomicsArgs{sender.queue(), sender.mine(), sender.peer(), sender.view.limit, told});
    if (told[0] != kOk) {
        fprintf(stderr, "atomics: the queue's status is %#llx\n", (unsigned long long)told[0]);
        return 1;
    }
    uint64_t there[2] = {};
    receiver.fetch(kCounter, there, sizeof(there));
    const Found found = look(sender, words, told[1], there[1]);
    const uint64_t all = found.threads * kAdds;
    printf("%llu threads on %s: %llu adds saw %llu values, the sum is %llu, and %llu took the lock\n", (unsigned long long)found.threads,
           sender.gpu().c_str(), (unsigned long long)all, (unsigned long long)found.values, (unsigned long long)there[0],
           (unsigned long long)found.takers);
    sender.close();
    receiver.close();
    return found.values == all && there[0] == all && found.takers == 1 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const example::Options options(argc, argv, {{"device", "emu0"}, {"gpu", "cpu"}});
    return example::run("atomics", [&] { return adds(options); });
}
#endif
