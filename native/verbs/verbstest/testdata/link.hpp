// SPDX-License-Identifier: MIT
// A socket between two queue pairs of this host, and the packets on it. A requester connects to the socket that the responder's pair listens
// on; requests go one way, and what answers them goes the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mori::fake {

enum Type : uint8_t { kHello, kWelcome, kRequest, kAck, kData, kRnr, kNak, kDown, kUp };
enum Flags : uint8_t { kFirst = 1, kLast = 2, kSolicited = 4 };

constexpr uint32_t kPayload = 32768;

struct Packet {
    uint32_t bytes;  // that follow it
    Type type;
    uint8_t op, flags, status;
    uint32_t sequence, rkey;
    uint64_t addr;
    uint32_t length, offset;  // of the message, and where these bytes are in it
    uint32_t imm, number;     // of the sender's pair, in a hello
    uint64_t compare_add, swap;
};
static_assert(sizeof(Packet) == 56);

class Link {
public:
    Link() = default;
    explicit Link(int descriptor) : fd_(descriptor) {}
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;
    ~Link() { close(); }

    void open(int descriptor);
    void close();
    bool is_open() const { return fd_ >= 0; }
    /// Whether nothing is left to send.
    bool done() const { return sent_ == out_.size(); }
    /// Whether more should wait until the other side has read some.
    bool full() const { return out_.size() - sent_ >= 4 * kPayload; }
    /// Adds a packet, and returns where its bytes go.
    uint8_t *add(const Packet &packet);
    /// Takes the last packet back, when there are no bytes for it.
    void take_back(uint32_t bytes);
    /// Sends what it can. False says that the other side is gone.
    bool flush();
    /// Gives the next whole packet and its bytes, valid until the next call. False: there is none, and over() says whether there will be.
    bool next(Packet *packet, const uint8_t **bytes);
    bool over() const { return over_; }
    int fd() const { return fd_; }

    int slot = -1;      // where its descriptor was polled
    bool ready = true;  // something may have come

private:
    bool fill();
    int fd_ = -1;
    bool over_ = false;
    std::vector<uint8_t> out_, in_;
    size_t sent_ = 0, begin_ = 0;
};

}  // namespace mori::fake
