// SPDX-License-Identifier: MIT
// A kernel writes to another GPU's memory through a NIC: once from registered memory, and once with the bytes inside of the entry itself, which
// may be any of the kernel's. Behind each write goes an atomic add, which tells the other side that the bytes are there.
//
//     make examples
//     build/examples/write --device emu0 --gpu cpu
//     build/examples/write --gpu cuda:0,cuda:1
//
// The file is compiled twice: for GPUs it is the kernel, for the host the program, with the kernel for threads of the CPU in it.
#include "mori/nic/device.hpp"

namespace {

using namespace mori::nic;
constexpr Provider kNic = Provider::mlx5;

constexpr uint64_t kFlag = 0;         // counts writes that have come; on the sender's side the add's old value comes there
constexpr uint64_t kInlineAt = 64;    // where the inline write goes
constexpr uint64_t kDataAt = 4096;    // where the other one does
constexpr uint64_t kDataBytes = 8192;
constexpr uint64_t kInlineBytes = 40;

struct WriteArgs {
    Queue* queue;
    Memory mine, peer;
    uint64_t limit;     // nanoseconds of a wait
    uint64_t* status;   // what came of it, in host memory
};

MORI_DEVICE_INLINE uint8_t byteAt(uint64_t i) { return uint8_t(i * 7 + 3); }

}  // namespace

/// One block. All its threads fill the buffer; the block posts, and one thread waits for both adds.
extern "C" MORI_DEVICE_KERNEL(256) void example_write(const WriteArgs args) {
    using namespace mori::device;
    const Channel channel{args.queue, args.limit, nullptr, 0, 1};
    uint8_t* const bytes = reinterpret_cast<uint8_t*>(args.mine.addr);
    for (uint64_t i = threadInBlock(); i < kDataBytes; i += blockSize()) {
        bytes[kDataAt + i] = byteAt(i);
    }
    // Writes of one queue arrive in order. None but the last has a completion of its own: a later one tells of those before it.
    post<kNic, Group::block>(channel, with(write(args.peer, kDataAt, args.mine, kDataAt, kDataBytes), kSilent));
    post<kNic, Group::block>(channel, with(fetchAdd(args.peer, kFlag, args.mine, kFlag, 1), kSilent));

    uint8_t own[kInlineBytes];  // not registered: the entry takes them with it
    for (uint64_t i = 0; i < kInlineBytes; i++) {
        own[i] = byteAt(i + 1);
    }
    post<kNic, Group::block>(channel, with(writeInline(args.peer, kInlineAt, own, kInlineBytes), kSilent));
    const Posted last = post<kNic, Group::block>(channel, fetchAdd(args.peer, kFlag, args.mine, kFlag, 1));
    const uint64_t status = quiet<kNic, Group::block>(channel, last);
    if (threadInBlock() == 0) {
        *args.status = status;
    }
}

#if defined(MORI_DEVICE_CPU) && !defined(MORI_ONLY_KERNELS)
#include <stdio.h>

#include <vector>

#include "host.hpp"

namespace {

constexpr uint64_t kAllBytes = kDataAt + kDataBytes;

uint64_t wrongBytes(const std::vector<uint8_t>& all, uint64_t at, uint64_t n, uint64_t from) {
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < n; i++) {
        wrong += all[at + i] != byteAt(i + from);
    }
    return wrong;
}

int writes(const example::Options& options) {
    example::Side sender(options["device"], options.gpu(0), "write", "example_write");
    example::Side receiver(options["device"], options.gpu(1), "write", "example_write");
    example::join(sender, receiver, kAllBytes);
    const std::vector<uint8_t> zeros(kAllBytes);
    sender.fill(0, zeros.data(), kAllBytes);
    receiver.fill(0, zeros.data(), kAllBytes);

    uint64_t* const status = sender.words<uint64_t>();
    sender.launch("example_write", example_write, WriteArgs{sender.queue(), sender.mine(), sender.peer(), sender.view.limit, status});
    if (*status != kOk) {
        fprintf(stderr, "write: the queue's status is %#llx\n", (unsigned long long)*status);
        return 1;
    }
    std::vector<uint8_t> got(kAllBytes);
    receiver.fetch(0, got.data(), kAllBytes);
    const uint64_t wrong = wrongBytes(got, kDataAt, kDataBytes, 0) + wrongBytes(got, kInlineAt, kInlineBytes, 1);
    uint64_t flag = 0;
    memcpy(&flag, &got[kFlag], sizeof(flag));
    printf("%llu bytes written, %llu inline, by %s to %s: %llu are wrong, and the flag is %llu\n", (unsigned long long)kDataBytes,
           (unsigned long long)kInlineBytes, sender.gpu().c_str(), receiver.gpu().c_str(), (unsigned long long)wrong,
           (unsigned long long)flag);
    sender.close();
    receiver.close();
    return wrong == 0 && flag == 2 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const example::Options options(argc, argv, {{"device", "emu0"}, {"gpu", "cpu"}});
    return example::run("write", [&] { return writes(options); });
}
#endif
