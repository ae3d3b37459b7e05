// SPDX-License-Identifier: MIT
// A kernel of one process writes to the GPU of another: the two tell each other their endpoints and buffers over a line of text, as
// hosts of a cluster would over TCP.
//
//     make examples
//     build/examples/two_processes --device emu0 --gpu cpu
//     build/examples/two_processes --device emu0 --gpu cuda:0,cuda:1
#include "mori/nic/device.hpp"

namespace {

using namespace mori::nic;
constexpr Provider kNic = Provider::mlx5;
constexpr uint64_t kBytes = 1 << 20;

struct TwoArgs {
    Queue* queue;
    Memory mine, peer;
    uint64_t limit;
    uint64_t* status;
};

MORI_DEVICE_INLINE uint8_t byteAt(uint64_t i) { return uint8_t(i * 13 + (i >> 12)); }

}  // namespace

extern "C" MORI_DEVICE_KERNEL(256) void example_two(const TwoArgs args) {
    using namespace mori::device;
    const Channel channel{args.queue, args.limit, nullptr, 0, 1};
    uint8_t* const bytes = reinterpret_cast<uint8_t*>(args.mine.addr);
    for (uint64_t i = threadInBlock(); i < kBytes; i += blockSize()) {
        bytes[i] = byteAt(i);
    }
    const Posted put = post<kNic, Group::block>(channel, write(args.peer, 0, args.mine, 0, kBytes));
    const uint64_t status = quiet<kNic, Group::block>(channel, put);
    if (threadInBlock() == 0) {
        *args.status = status;
    }
}

#if defined(MORI_DEVICE_CPU) && !defined(MORI_ONLY_KERNELS)
#include "host.hpp"
#include "processes.hpp"

namespace {

constexpr int kPatience = 60;

/// What both do before the kernel.
void join(example::Side& side, const example::Line& line) {
    side.discover();
    side.device();
    line.tell(side.endpoint().address);
    side.connect(line.hear());
    line.tell(side.buffer(kBytes).shown);
    side.meet(line.hear());
    line.tell("ready");
    line.hear();
}

int receiver(const example::Options& options) {
    const example::Line line(example::kLineFd, kPatience);
    example::Side side(options["device"], options.gpu(1), "two_processes", "example_two");
    join(side, line);
    line.hear();  // that it is there
    std::vector<uint8_t> got(kBytes);
    side.fetch(0, got.data(), kBytes);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < kBytes; i++) {
        wrong += got[i] != byteAt(i);
    }
    side.close();
    line.tell(std::to_string(wrong));
    return wrong == 0 ? 0 : 1;
}

int sender(const example::Options& options) {
    example::Second second({"--role", "receiver", "--device", options["device"], "--gpu", options["gpu"]}, kPatience);
    example::Side side(options["device"], options.gpu(0), "two_processes", "example_two");
    join(side, second.line());
    uint64_t* const status = side.words<uint64_t>();
    side.launch("example_two", example_two, TwoArgs{side.queue(), side.mine(), side.peer(), side.view.limit, status});
    if (*status != kOk) {
        fprintf(stderr, "two_processes: the queue's status is %#llx\n", (unsigned long long)*status);
        return 1;
    }
    second.line().tell("written");
    const std::string wrong = second.line().hear();
    printf("%llu bytes from process %d to another: %s are wrong\n", (unsigned long long)kBytes, int(getpid()), wrong.c_str());
    side.close();
    return second.wait();
}

}  // namespace

int main(int argc, char** argv) {
    const example::Options options(argc, argv, {{"device", "emu0"}, {"gpu", "cpu"}, {"role", "sender"}});
    return example::run("two_processes", [&] { return options["role"] == "receiver" ? receiver(options) : sender(options); });
}
#endif
