// SPDX-License-Identifier: MIT
// What a queue pair asks of its peer. Requests go out in order, several before the first is answered, and are answered in order. Where the
// receiver was not ready, or the way broke, all that was not answered goes out again.
#include <cstring>

#include "world.hpp"

namespace mori::fake {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kReconnect = milliseconds(2);

bool reads(const Send &s) { return s.request.opcode >= IBV_WR_RDMA_READ; }

bool is_atomic(const Send &s) { return s.request.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP; }

ibv_wc_opcode opcode_of(ibv_wr_opcode op) {
    switch (op) {
    case IBV_WR_SEND: case IBV_WR_SEND_WITH_IMM: return IBV_WC_SEND;
    case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
    default: return IBV_WC_RDMA_WRITE;
    }
}

// finish completes the oldest request.
void finish(Pair *pair, ibv_wc_status status) {
    const Send s = std::move(pair->sends.front());
    pair->sends.pop_front();
    pair->first = (pair->first + 1) & kSequences;
    pair->sent -= pair->sent > 0 ? 1 : 0;
    pair->deadline = {};
    pair->rnr_left = pair->attr.rnr_retry;
    ibv_wc wc = completion(pair, s.request.wr_id, status);
    if (status == IBV_WC_SUCCESS) {
        of(pair->context)->device->bytes += s.length;
        wc.opcode = opcode_of(s.request.opcode);
        if (reads(s)) wc.byte_len = s.length;
        if (pair->init.sq_sig_all == 0 && (s.request.send_flags & IBV_SEND_SIGNALED) == 0) return;
    }
    complete(pair, true, s.index, wc, false);
}

void broken(Pair *pair, int status) {
    finish(pair, ibv_wc_status(status));
    fail(pair);
}

void flush(Pair *pair) {
    const auto one = [pair](bool send, uint64_t index, uint64_t id) {
        complete(pair, send, index, completion(pair, id, IBV_WC_WR_FLUSH_ERR), false);
    };
    for (; !pair->sends.empty(); pair->sends.pop_front()) one(true, pair->sends.front().index, pair->sends.front().request.wr_id);
    for (; !pair->recvs.empty(); pair->recvs.pop_front()) one(false, pair->recvs.front().index, pair->recvs.front().id);
}

void again_from_start(Pair *pair, Time when) {
    pair->sent = 0;
    pair->offset = 0;
    pair->again = when;
}

void lost(Pair *pair, Time now) {
    pair->out.close();
    pair->welcome = pair->peer_down = false;
    again_from_start(pair, now + kReconnect);
}

bool port_usable(const Pair *pair) {
    const Device *d = of(pair->context)->device;
    return d->up && d->gids[pair->attr.ah_attr.grh.sgid_index];
}

// patience is how long a pair tries to reach its peer.
Clock::duration patience(const Pair *pair) {
    const uint64_t most = setting("FAKE_VERBS_TIMEOUT_MS", 50) * 1000, asked = (uint64_t(4096) << pair->attr.timeout) / 1000;
    return microseconds(std::min(most, asked) * (pair->attr.retry_cnt + 1));
}

void not_ready(Pair *pair, int timer, Time now) {
    static constexpr uint32_t kMicroseconds[] = {
        655360, 10,   20,   30,   40,    60,    80,    120,   160,   240,   320,   480,    640,    960,    1280,   1920,
        2560,   3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
    if (pair->attr.rnr_retry != 7 && pair->rnr_left-- == 0) return broken(pair, IBV_WC_RNR_RETRY_EXC_ERR);
    again_from_start(pair, now + microseconds(std::min<uint64_t>(kMicroseconds[timer & 31], setting("FAKE_VERBS_RNR_MS", 2) * 1000)));
}

void take_data(Pair *pair, const Packet &p, const uint8_t *bytes) {
    const Send &s = pair->sends.front();
    if (!scatter(pair->pd, s.sges, p.offset, bytes, p.bytes)) return broken(pair, IBV_WC_LOC_PROT_ERR);
    if ((p.flags & kLast) != 0) finish(pair, IBV_WC_SUCCESS);
}

void take(Pair *pair, const Packet &p, const uint8_t *bytes, Time now) {
    if (p.type == kWelcome) pair->welcome = true;
    if (p.type == kDown || p.type == kUp) pair->peer_down = p.type == kDown;
    if (pair->sends.empty() || p.sequence != pair->first) return;
    switch (p.type) {
    case kAck: return finish(pair, IBV_WC_SUCCESS);
    case kData: return take_data(pair, p, bytes);
    case kRnr: return not_ready(pair, p.status, now);
    case kNak: return broken(pair, p.status);
    default: return;
    }
}

void hear(Pair *pair, Time now) {
    Packet p;
    const uint8_t *bytes;
    while (pair->out.is_open() && pair->out.next(&p, &bytes)) take(pair, p, bytes, now);
    if (pair->out.is_open() && pair->out.over()) lost(pair, now);
}

// push sends what it can. A way that is closed may have brought the reason.
void push(Pair *pair, Time now) {
    if (pair->out.flush()) return;
    pair->out.ready = true;
    hear(pair, now);
}

void connect(Pair *pair, Time now) {
    const int device = device_of(pair->attr.ah_attr.grh.dgid);
    const int fd = device < 0 ? -1 : connect_to(device, pair->attr.dest_qp_num);
    pair->again = now + kReconnect;
    if (fd < 0) return;
    pair->out.open(fd);
    Packet hello{};
    hello.type = kHello;
    hello.number = pair->qp_num;
    hello.addr = uint64_t(of(pair->context)->device->index);
    hello.sequence = pair->first;
    hello.length = bytes_of(pair->attr.path_mtu);
    hello.offset = pair->attr.max_rd_atomic;
    pair->out.add(hello);
    pair->again = {};
    push(pair, now);
}

// reach tells whether requests may go out, and gives up where they could not for too long.
bool reach(Pair *pair, Time now) {
    if (pair->sends.empty()) return false;
    if (port_usable(pair) && !pair->out.is_open() && pair->again == Time{}) connect(pair, now);
    const bool nobody = !port_usable(pair) || pair->peer_down || !pair->out.is_open();
    if (!nobody && pair->welcome) {
        pair->deadline = {};
        return true;
    }
    if (nobody && pair->deadline == Time{} && pair->attr.timeout != 0) pair->deadline = now + patience(pair);
    if (pair->deadline != Time{} && now >= pair->deadline) broken(pair, IBV_WC_RETRY_EXC_ERR);
    return false;
}

// wrong is the status of a request that fails before it goes out.
int wrong(const Pair *pair, const Send &s) {
    World &w = world();
    if (w.fail_op == int(s.request.opcode)) {
        w.fail_op = -1;
        return w.fail_status;
    }
    if (reads(s) && pair->attr.max_rd_atomic == 0) return IBV_WC_LOC_QP_OP_ERR;
    const bool inlined = (s.request.send_flags & IBV_SEND_INLINE) != 0;
    return inlined || usable(pair->pd, s.sges, reads(s) ? IBV_ACCESS_LOCAL_WRITE : 0) ? 0 : IBV_WC_LOC_PROT_ERR;
}

// waits tells whether a request may not go out before reads and atomics that went out before it are answered.
bool waits(const Pair *pair, const Send &s) {
    const bool fenced = (s.request.send_flags & IBV_SEND_FENCE) != 0;
    if (!fenced && !reads(s)) return false;
    const auto open = std::count_if(pair->sends.begin(), pair->sends.begin() + ptrdiff_t(pair->sent), reads);
    return open > 0 && (fenced || open >= pair->attr.max_rd_atomic);
}

Packet next_packet(const Pair *pair, const Send &s) {
    Packet p{};
    p.type = kRequest;
    p.op = s.request.opcode;
    p.bytes = reads(s) ? 0 : std::min(kPayload, s.length - pair->offset);
    p.sequence = (pair->first + uint32_t(pair->sent)) & kSequences;
    p.length = s.length;
    p.offset = pair->offset;
    p.imm = s.request.imm_data;
    const bool last = reads(s) || p.offset + p.bytes == s.length;
    const bool solicited = (s.request.send_flags & IBV_SEND_SOLICITED) != 0;
    p.flags = uint8_t((p.offset == 0 ? kFirst : 0) | (last ? kLast : 0) | (solicited ? kSolicited : 0));
    if (is_atomic(s)) {
        p.addr = s.request.wr.atomic.remote_addr;
        p.rkey = s.request.wr.atomic.rkey;
        p.compare_add = s.request.wr.atomic.compare_add;
        p.swap = s.request.wr.atomic.swap;
    } else if (s.request.opcode != IBV_WR_SEND && s.request.opcode != IBV_WR_SEND_WITH_IMM) {
        p.addr = s.request.wr.rdma.remote_addr;
        p.rkey = s.request.wr.rdma.rkey;
    }
    return p;
}

bool fill(const Pair *pair, const Send &s, const Packet &p, uint8_t *to) {
    if (p.bytes == 0) return true;
    if ((s.request.send_flags & IBV_SEND_INLINE) == 0) return gather(pair->pd, s.sges, p.offset, to, p.bytes);
    memcpy(to, s.inlined.data() + p.offset, p.bytes);
    return true;
}

// emit adds the next packet. A request that fails here completes when all before it have.
bool emit(Pair *pair) {
    if (pair->sent == pair->sends.size() || pair->again != Time{}) return false;
    Send &s = pair->sends[pair->sent];
    if (s.failed == 0 && pair->offset == 0) {
        if (waits(pair, s)) return false;
        s.failed = wrong(pair, s);
    }
    const Packet p = next_packet(pair, s);
    if (s.failed == 0 && !fill(pair, s, p, pair->out.add(p))) {
        pair->out.take_back(p.bytes);
        s.failed = IBV_WC_LOC_PROT_ERR;
    }
    if (s.failed != 0) {
        if (pair->sent == 0) broken(pair, s.failed);
        return false;
    }
    pair->offset += p.bytes;
    if ((p.flags & kLast) != 0) {
        pair->sent++;
        pair->offset = 0;
    }
    return true;
}

}  // namespace

// What a status leaves open holds something, and nothing of use.
ibv_wc completion(const Pair *pair, uint64_t id, ibv_wc_status status) {
    ibv_wc wc;
    memset(static_cast<void *>(&wc), 0xa5, sizeof wc);
    wc.wr_id = id;
    wc.status = status;
    wc.qp_num = pair->qp_num;
    wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : 0x80 + uint32_t(status);
    if (status == IBV_WC_SUCCESS) wc.wc_flags = 0;
    return wc;
}

void request(Pair *pair, Time now) {
    if (pair->state == IBV_QPS_ERR) return flush(pair);
    if (pair->state != IBV_QPS_RTS) return;
    if (now >= pair->again) pair->again = {};
    if (port_usable(pair)) hear(pair, now);
    if (pair->out.is_open()) push(pair, now);
    if (pair->state != IBV_QPS_RTS || !reach(pair, now)) return;
    for (bool more = true; more && pair->out.done();) {
        more = false;
        while (pair->state == IBV_QPS_RTS && !pair->out.full() && emit(pair)) more = true;
        if (pair->out.is_open()) push(pair, now);
    }
}

Time due(const Pair *pair) {
    if (pair->state != IBV_QPS_RTS || pair->sends.empty()) return Time::max();
    Time at = pair->deadline != Time{} ? pair->deadline : Time::max();
    return pair->again != Time{} && port_usable(pair) ? std::min(at, pair->again) : at;
}

}  // namespace mori::fake
