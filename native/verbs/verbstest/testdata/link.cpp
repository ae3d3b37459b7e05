// SPDX-License-Identifier: MIT
#include "link.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace mori::fake {

void Link::open(int descriptor) {
    close();
    fd_ = descriptor;
}

void Link::close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = slot = -1;
    over_ = false;
    ready = true;
    out_.clear();
    in_.clear();
    sent_ = begin_ = 0;
}

uint8_t *Link::add(const Packet &packet) {
    if (sent_ == out_.size()) {
        out_.clear();
        sent_ = 0;
    }
    const size_t at = out_.size();
    out_.resize(at + sizeof packet + packet.bytes);
    memcpy(out_.data() + at, &packet, sizeof packet);
    return out_.data() + at + sizeof packet;
}

void Link::take_back(uint32_t bytes) { out_.resize(out_.size() - bytes - sizeof(Packet)); }

bool Link::flush() {
    while (sent_ < out_.size()) {
        const ssize_t n = send(fd_, out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN;
        sent_ += size_t(n);
    }
    return true;
}

bool Link::fill() {
    if (begin_ > 0) in_.erase(in_.begin(), in_.begin() + ptrdiff_t(begin_));
    begin_ = 0;
    const size_t had = in_.size();
    in_.resize(had + kPayload + sizeof(Packet));
    ssize_t n;
    do n = recv(fd_, in_.data() + had, in_.size() - had, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    over_ = n == 0 || (n < 0 && errno != EAGAIN);
    ready = n > 0;
    in_.resize(had + size_t(n > 0 ? n : 0));
    return n > 0;
}

bool Link::next(Packet *packet, const uint8_t **bytes) {
    for (;;) {
        const size_t has = in_.size() - begin_;
        if (has >= sizeof *packet) {
            memcpy(packet, in_.data() + begin_, sizeof *packet);
            if (has >= sizeof *packet + packet->bytes) {
                *bytes = in_.data() + begin_ + sizeof *packet;
                begin_ += sizeof *packet + packet->bytes;
                return true;
            }
        }
        if (fd_ < 0 || over_ || !ready || !fill()) return false;
    }
}

}  // namespace mori::fake
