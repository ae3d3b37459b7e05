// SPDX-License-Identifier: MIT
// A kernel sends messages: it does not know where they go, for the other side has said so by its receives, which its host posts. Each
// arrives whole, in order, with its length, and the last with an immediate value.
//
//     make examples
//     build/examples/send_recv --device emu0 --gpu cpu
#include "mori/nic/device.hpp"

namespace {

using namespace mori::nic;
constexpr Provider kNic = Provider::mlx5;

constexpr uint64_t kMessages = 5;
constexpr uint64_t kRoom = 1024;  // of each message, on both sides
constexpr uint32_t kImmediate32 = 0xfab;

struct SendArgs {
    Queue* queue;
    Memory mine;
    uint64_t limit;
    uint64_t* status;
};

/// Message k is longer than the one before it.
MORI_DEVICE_INLINE uint64_t bytesOf(uint64_t k) { return 100 * (k + 1); }
MORI_DEVICE_INLINE uint8_t byteAt(uint64_t k, uint64_t i) { return uint8_t(k * 31 + i * 7 + 1); }

}  // namespace

/// One block. Its threads write all messages, then the block sends them one after the other, and waits for the last.
extern "C" MORI_DEVICE_KERNEL(256) void example_send(const SendArgs args) {
    using namespace mori::device;
    const Channel channel{args.queue, args.limit, nullptr, 0, 1};
    uint8_t* const bytes = reinterpret_cast<uint8_t*>(args.mine.addr);
    for (uint64_t i = threadInBlock(); i < kMessages * kRoom; i += blockSize()) {
        bytes[i] = byteAt(i / kRoom, i % kRoom);
    }
    Posted last{};
    for (uint64_t k = 0; k < kMessages; k++) {
        Work work = send(args.mine, k * kRoom, bytesOf(k));
        if (k == kMessages - 1) {
            work = with(work, kImmediate | kSolicited);
            work.immediate = kImmediate32;
        }
        last = post<kNic, Group::block>(channel, work);
    }
    const uint64_t status = quiet<kNic, Group::block>(channel, last);
    if (threadInBlock() == 0) {
        *args.status = status;
    }
}

#if defined(MORI_DEVICE_CPU) && !defined(MORI_ONLY_KERNELS)
#include <vector>

#include "host.hpp"

namespace {

/// Waits for the messages, and counts what is wrong with them.
uint64_t wrongOf(const example::Side& receiver) {
    uint64_t wrong = 0;
    std::vector<uint8_t> got(kRoom);
    for (uint64_t k = 0; k < kMessages; k++) {
        const example::Message message = receiver.received();
        const bool last = k == kMessages - 1;
        wrong += message.bytes != bytesOf(k);
        wrong += last && message.immediate != kImmediate32;
        receiver.fetch(k * kRoom, got.data(), kRoom);
        for (uint64_t i = 0; i < kRoom; i++) {
            wrong += got[i] != (i < bytesOf(k) ? byteAt(k, i) : 0);  // and nothing behind it
        }
        printf("message %llu: %u bytes%s\n", (unsigned long long)k + 1, message.bytes, last ? ", with an immediate value" : "");
    }
    return wrong;
}

int sends(const example::Options& options) {
    example::Side sender(options["device"], options.gpu(0), "send_recv", "example_send");
    example::Side receiver(options["device"], options.gpu(1), "send_recv", "example_send", 0, 3);
    example::join(sender, receiver, kMessages * kRoom);
    const std::vector<uint8_t> zeros(kMessages * kRoom);
    receiver.fill(0, zeros.data(), zeros.size());
    for (uint64_t k = 0; k < kMessages; k++) {
        receiver.receive(k * kRoom, kRoom);
    }
    uint64_t* const status = sender.words<uint64_t>();
    sender.launch("example_send", example_send, SendArgs{sender.queue(), sender.mine(), sender.view.limit, status});
    if (*status != kOk) {
        fprintf(stderr, "send_recv: the queue's status is %#llx\n", (unsigned long long)*status);
        return 1;
    }
    const uint64_t wrong = wrongOf(receiver);
    printf("%llu messages from %s to %s: %llu things are wrong\n", (unsigned long long)kMessages, sender.gpu().c_str(),
           receiver.gpu().c_str(), (unsigned long long)wrong);
    sender.close();
    receiver.close();
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const example::Options options(argc, argv, {{"device", "emu0"}, {"gpu", "cpu"}});
    return example::run("send_recv", [&] { return sends(options); });
}
#endif
