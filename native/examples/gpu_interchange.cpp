// SPDX-License-Identifier: MIT
// The GPU data interchange in C++: a kernel on one GPU fills a buffer and writes it to another's by a NIC that it drives itself, or by a proxy
// of the host; the other GPU looks at every byte. The same steps, options and last lines as `mori demo interchange`.
//
//     make examples
//     build/examples/gpu_interchange                                 the emulated NIC, and threads of the CPU
//     build/examples/gpu_interchange --device proxy:tcp --gpu cuda:0 a host thread posts for the kernel, over TCP
//     build/examples/gpu_interchange --gpu cuda:0,cuda:1 --processes 2 --rounds 1000
#include "mori/nic/device.hpp"
#include "mori/proxy/device.hpp"

/// What a kernel tells, in host memory.
struct Told {
    uint64_t rounds, nanoseconds, wrong, status;
};

struct Exchange {
    const void* queue;  ///< mori::nic::Queue or mori::proxy::Queue
    mori::nic::Memory mine, peer;
    uint64_t bytes, rounds, limit;
    uint64_t* words;  ///< with a proxy, region 1: [0] the round that has come, [1] the round that the other side has looked at
    Told* told;
    uint64_t value;  ///< of the bytes in the last round; one less in the round before
};

namespace interchange {

using mori::device::Order;
using mori::device::Scope;

MORI_DEVICE_INLINE uint8_t valueOf(const Exchange& x, uint64_t round) { return uint8_t(x.value - (x.rounds - round)); }

MORI_DEVICE_INLINE void fill(const Exchange& x, uint64_t round) {
    uint8_t* const bytes = reinterpret_cast<uint8_t*>(x.mine.addr);
    for (uint64_t i = mori::device::threadInBlock(); i < x.bytes; i += mori::device::blockSize()) {
        bytes[i] = valueOf(x, round);
    }
}

/// Counts the bytes that are not of the value. They may have come while the kernel runs, so each is loaded anew.
MORI_DEVICE_INLINE void look(const Exchange& x, uint8_t value) {
    const uint8_t* const bytes = reinterpret_cast<const uint8_t*>(x.mine.addr);
    uint64_t wrong = 0;
    for (uint64_t i = mori::device::threadInBlock(); i < x.bytes; i += mori::device::blockSize()) {
        wrong += mori::device::atomicLoad<Scope::system, Order::relaxed>(bytes + i) != value;
    }
    if (wrong != 0) {
        mori::device::atomicAdd<Scope::system, Order::relaxed>(&x.told->wrong, wrong);
    }
}

MORI_DEVICE_INLINE void end(const Exchange& x, uint64_t start, uint64_t rounds, uint64_t status) {
    if (mori::device::threadInBlock() == 0) {
        x.told->rounds = rounds;
        x.told->nanoseconds = mori::device::nanoseconds() - start;
        x.told->status = status;
    }
}

/// Waits until a word has reached a round. All threads of the block know whether it did, and see what was sent before.
MORI_DEVICE_INLINE bool comes(const Exchange& x, const uint64_t* word, uint64_t round) {
    MORI_DEVICE_SHARED(uint64_t, came);
    mori::device::blockSync();
    if (mori::device::threadInBlock() == 0) {
        came = mori::device::pollUntil(
            x.limit, [&] { return mori::device::atomicLoad<Scope::system, Order::acquire>(word) >= round; });
    }
    mori::device::blockSync();
    mori::device::fence<Scope::system>();
    return came != 0;
}

}  // namespace interchange

/// The sender by a NIC. One block: it fills its buffer, posts the write, rings the doorbell and polls for the completion.
extern "C" MORI_DEVICE_KERNEL(256) void example_nic_send(const Exchange x) {
    using namespace mori::nic;
    const Channel channel{static_cast<Queue*>(const_cast<void*>(x.queue)), x.limit, nullptr, 0, 1};
    const uint64_t start = mori::device::nanoseconds();
    uint64_t status = kOk;
    uint64_t round = 1;
    for (; round <= x.rounds && status == kOk; round++) {
        interchange::fill(x, round);
        const Posted put = post<Provider::mlx5, Group::block>(channel, write(x.peer, 0, x.mine, 0, x.bytes));
        status = quiet<Provider::mlx5, Group::block>(channel, put);
    }
    interchange::end(x, start, status == kOk ? x.rounds : round - 2, status);
}

/// The sender by a proxy: a put with a signal, and it waits until the other side has looked at the round.
extern "C" MORI_DEVICE_KERNEL(256) void example_proxy_send(const Exchange x) {
    using namespace mori::proxy;
    const Queue& queue = *static_cast<const Queue*>(x.queue);
    const uint64_t start = mori::device::nanoseconds();
    uint64_t status = 0;
    uint64_t round = 1;
    for (; round <= x.rounds && status == 0; round++) {
        interchange::fill(x, round);
        const Signal come{1, 0, Atomic::set, round};
        const uint64_t ticket = putSignal<Group::block>(queue, 0, 0, x.mine.addr, x.bytes, come);
        status = wait<Group::block>(queue, ticket, 0);
        if (status == 0 && !interchange::comes(x, &x.words[1], round)) {
            status = kTimeout;
        }
    }
    interchange::end(x, start, status == 0 ? x.rounds : round - 2, status);
}

/// The receiver by a proxy: it waits for each round's signal, looks at every byte, and tells the sender. A NIC's needs no kernel.
extern "C" MORI_DEVICE_KERNEL(256) void example_proxy_receive(const Exchange x) {
    using namespace mori::proxy;
    const Queue& queue = *static_cast<const Queue*>(x.queue);
    const uint64_t start = mori::device::nanoseconds();
    uint64_t status = 0;
    uint64_t round = 1;
    for (; round <= x.rounds && status == 0; round++) {
        if (!interchange::comes(x, &x.words[0], round)) {
            status = kTimeout;
            continue;
        }
        interchange::look(x, interchange::valueOf(x, round));
        status = wait<Group::block>(queue, putValue<Group::block>(queue, 0, 8, round, 8, 1), 0);
    }
    interchange::end(x, start, status == 0 ? x.rounds : round - 2, status);
}

/// Counts the bytes that are not those of the last round.
extern "C" MORI_DEVICE_KERNEL(256) void example_verify(const Exchange x) { interchange::look(x, uint8_t(x.value)); }

#if defined(MORI_DEVICE_CPU) && !defined(MORI_ONLY_KERNELS)
#include "party.hpp"

namespace {

void say(const std::string& line) {
    printf("%s\n", line.c_str());
    fflush(stdout);
}

const char* const kRanks[2] = {"sender", "receiver"};

/// Asks both, one after the other, and prints what they answer.
void each(const std::unique_ptr<Party> (&sides)[2], const std::string& command) {
    for (int i = 0; i < 2; i++) {
        say(std::string("  ") + kRanks[i] + ": " + sides[i]->ask(command));
    }
}

void connect(const std::unique_ptr<Party> (&sides)[2]) {
    say("\nStep 4: endpoints");
    std::string numbers[2], addresses[2];
    for (int i = 0; i < 2; i++) {
        std::istringstream end(sides[i]->ask("endpoint"));
        uint64_t number = 0;
        end >> number >> addresses[i];
        std::ostringstream words;
        words << "0x" << std::hex << number;
        numbers[i] = words.str();
        say(std::string("  ") + kRanks[i] + ": QP number " + numbers[i]);
    }
    say("\nStep 5: connection, both ways");
    for (int i = 0; i < 2; i++) {
        sides[i]->ask("connect " + addresses[1 - i]);
    }
    for (int i = 0; i < 2; i++) {
        say(std::string("  ") + kRanks[i] + ": QP " + numbers[i] + " is connected to QP " + numbers[1 - i]);
    }
}

/// Runs both kernels at once.
void run(const std::unique_ptr<Party> (&sides)[2]) {
    sides[1]->begin("run");
    sides[0]->begin("run");
    for (int i = 0; i < 2; i++) {
        const std::string told = sides[i]->end();
        if (!told.empty()) {
            say(std::string("  ") + kRanks[i] + ": " + told);
        }
    }
}

/// The devices of a list that has the ports of each below it, further to the right.
std::string namesIn(const std::string& found) {
    std::istringstream lines(found);
    std::string names;
    for (std::string line; std::getline(lines, line);) {
        if (line.rfind("    ", 0) != 0) {
            names += (names.empty() ? "" : ", ") + line.substr(line.find_first_not_of(' '));
        }
    }
    return names;
}

int steps(const Wish& wish, const std::unique_ptr<Party> (&sides)[2]) {
    say("GPU data interchange over " + wish.device + ": sender on " + sides[0]->ask("gpu") + " to receiver on " + sides[1]->ask("gpu"));
    const std::string found[2] = {sides[0]->ask("discover"), sides[1]->ask("discover")};
    say("\nStep 1: RDMA context");
    for (int i = 0; i < 2; i++) {
        say(std::string("  ") + kRanks[i] + ": shows " + namesIn(found[i]));
    }
    say("\nStep 2: devices and ports\n" + found[0].substr(0, found[0].find_last_not_of('\n') + 1));
    say("\nStep 3: device contexts");
    each(sides, "device");
    connect(sides);
    say("\nStep 6: GPU buffers, registered");
    const std::string shown[2] = {sides[0]->ask("register"), sides[1]->ask("register")};
    for (int i = 0; i < 2; i++) {
        sides[i]->ask("meet " + shown[1 - i]);
    }
    each(sides, "buffer");
    say("\nStep 7: the kernel fills its buffer, posts the write, rings the doorbell and polls for the completion");
    run(sides);
    say("\nStep 8: verification on the receiving GPU, and clean-up");
    const std::string wrong = sides[1]->ask("verify"), bytes = std::to_string(wish.bytes), value = std::to_string(wish.value);
    say(wrong == "0" ? "Success! All " + bytes + " bytes verified with value " + value
                     : "WRONG BYTES: " + wrong + " of " + bytes + " are not " + value);
    for (const std::unique_ptr<Party>& side : sides) {
        side->ask("close");
    }
    if (wrong != "0") {
        return 1;
    }
    say("\n=== Example completed successfully! ===");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const example::Options options(argc, argv, {{"device", "emu0"}, {"gpu", "cpu"}, {"bytes", "1024"}, {"value", "42"}, {"rounds", "1"},
                                                {"processes", "1"}, {"limit", "30"}, {"role", "sender"}});
    const uint64_t rounds = options.number("rounds", 1, uint64_t(1) << 40), limit = options.number("limit", 1, 3600);
    const Wish wish{options["device"], {options.gpu(0), options.gpu(1)}, options.number("bytes", 1, uint64_t(1) << 40),
                    options.number("value", 0, 255), rounds, double(limit)};
    // Beside the limit of each wait, for a process to start and kernels to be loaded.
    const int patience = int(std::min<uint64_t>(limit * rounds + 60, 1000000));
    return example::run("gpu_interchange", [&] {
        if (options["role"] == "receiver") {
            return serve(wish, patience);
        }
        std::unique_ptr<Party> sides[2] = {std::make_unique<Here>(wish, 0), nullptr};
        if (options.number("processes", 1, 2) == 1) {
            sides[1] = std::make_unique<Here>(wish, 1);
        } else {
            std::vector<std::string> arguments{"--role", "receiver"};
            for (int i = 1; i < argc; i++) {
                arguments.push_back(argv[i]);
            }
            sides[1] = std::make_unique<There>(arguments, patience);
        }
        return steps(wish, sides);
    });
}
#endif
