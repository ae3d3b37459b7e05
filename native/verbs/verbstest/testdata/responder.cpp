// SPDX-License-Identifier: MIT
// How a queue pair answers its peer. A request is checked when its first bytes come, and again with each piece, for its region may go in
// between. What comes out of order is dropped: the requester sends it again.
#include <sys/socket.h>

#include <cstring>

#include "world.hpp"

namespace mori::fake {

namespace {

constexpr int kNotReady = -1;

bool takes_recv(const Packet &p) { return p.op == IBV_WR_SEND || p.op == IBV_WR_SEND_WITH_IMM || p.op == IBV_WR_RDMA_WRITE_WITH_IMM; }
bool is_send(const Packet &p) { return p.op == IBV_WR_SEND || p.op == IBV_WR_SEND_WITH_IMM; }
bool has_imm(const Packet &p) { return p.op == IBV_WR_SEND_WITH_IMM || p.op == IBV_WR_RDMA_WRITE_WITH_IMM; }

int access_of(const Packet &p) {
    if (p.op == IBV_WR_RDMA_READ) return IBV_ACCESS_REMOTE_READ;
    return p.op > IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_ATOMIC : IBV_ACCESS_REMOTE_WRITE;
}

void reply(Inbound *in, Type type, const Packet &to, int status = 0) {
    Packet p{};
    p.type = type;
    p.status = uint8_t(status);
    p.sequence = to.sequence;
    in->link.add(p);
}

void served(Pair *pair) {
    pair->expected = (pair->expected + 1) & kSequences;
    pair->receiving = false;
}

// refuse tells the requester why, and has the pair fail.
void refuse(Pair *pair, Inbound *in, const Packet &p, int status) {
    reply(in, kNak, p, status);
    ibv_async_event event{};
    event.element.qp = pair;
    const ibv_event_type type = status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR;
    if (status != IBV_WC_REM_OP_ERR) raise(of(pair->context), type, event);
    fail(pair);
}

// received completes the oldest posted receive.
void received(Pair *pair, const Packet &p, ibv_wc_status status) {
    const Recv recv = std::move(pair->recvs.front());
    pair->recvs.pop_front();
    ibv_wc wc = completion(pair, recv.id, status);
    if (status == IBV_WC_SUCCESS) {
        wc.opcode = is_send(p) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
        wc.byte_len = p.length;
        wc.src_qp = pair->attr.dest_qp_num;
        wc.wc_flags = has_imm(p) ? IBV_WC_WITH_IMM : 0;
        if (has_imm(p)) wc.imm_data = p.imm;
    }
    complete(pair, false, recv.index, wc, (p.flags & kSolicited) != 0);
}

// fail_recv has the receive fail that a message met, and its sender hear of that.
void fail_recv(Pair *pair, Inbound *in, const Packet &p, ibv_wc_status mine, int its) {
    received(pair, p, mine);
    refuse(pair, in, p, its);
}

// admit is what stands against a request: 0, kNotReady, or the requester's status.
int admit(const Pair *pair, const Inbound *in, const Packet &p) {
    const uint32_t mtu = bytes_of(pair->attr.path_mtu);
    if (in->mtu != mtu && p.length > std::min(mtu, in->mtu)) return IBV_WC_REM_INV_REQ_ERR;
    const bool far = !is_send(p);
    if (far && (pair->attr.qp_access_flags & unsigned(access_of(p))) == 0) return IBV_WC_REM_INV_REQ_ERR;
    if (p.op >= IBV_WR_RDMA_READ && in->reads > pair->attr.max_dest_rd_atomic) return IBV_WC_REM_INV_REQ_ERR;
    if (p.op > IBV_WR_RDMA_READ && p.addr % 8 != 0) return IBV_WC_REM_INV_REQ_ERR;
    if (takes_recv(p) && pair->recvs.empty()) return kNotReady;
    return far && p.length > 0 && find(true, pair->pd, p.rkey, p.addr, p.length, access_of(p)) == nullptr ? IBV_WC_REM_ACCESS_ERR : 0;
}

void take_send(Pair *pair, Inbound *in, const Packet &p, const uint8_t *bytes) {
    const Recv &recv = pair->recvs.front();
    if ((p.flags & kFirst) != 0 && total(recv.sges) < p.length) return fail_recv(pair, in, p, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
    if (!scatter(pair->pd, recv.sges, p.offset, bytes, p.bytes)) return fail_recv(pair, in, p, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
    if ((p.flags & kLast) == 0) return;
    received(pair, p, IBV_WC_SUCCESS);
    reply(in, kAck, p);
    served(pair);
}

void take_write(Pair *pair, Inbound *in, const Packet &p, const uint8_t *bytes) {
    const Region *r = find(true, pair->pd, p.rkey, p.addr + p.offset, p.bytes, IBV_ACCESS_REMOTE_WRITE);
    if (p.bytes > 0 && (r == nullptr || !store(r, p.addr + p.offset, bytes, p.bytes))) return refuse(pair, in, p, IBV_WC_REM_ACCESS_ERR);
    if ((p.flags & kLast) == 0) return;
    if (takes_recv(p)) received(pair, p, IBV_WC_SUCCESS);
    reply(in, kAck, p);
    served(pair);
}

void take_atomic(Pair *pair, Inbound *in, const Packet &p) {
    const Region *r = find(true, pair->pd, p.rkey, p.addr, 8, IBV_ACCESS_REMOTE_ATOMIC);
    uint64_t before;
    if (!atomically(r, p, &before)) return refuse(pair, in, p, IBV_WC_REM_ACCESS_ERR);
    Packet data{};
    data.type = kData;
    data.flags = kFirst | kLast;
    data.sequence = p.sequence;
    data.bytes = data.length = 8;
    memcpy(in->link.add(data), &before, 8);
    served(pair);
}

void take(Pair *pair, Inbound *in, const Packet &p, const uint8_t *bytes) {
    if (p.sequence != pair->expected || (!pair->receiving && (p.flags & kFirst) == 0)) return;
    if ((p.flags & kFirst) != 0) {
        const int against = admit(pair, in, p);
        pair->receiving = against == 0;
        if (against == kNotReady) return reply(in, kRnr, p, pair->attr.min_rnr_timer);
        if (against != 0) return refuse(pair, in, p, against);
    }
    if (p.op == IBV_WR_RDMA_READ)
        pair->answer = {true, p, 0};
    else if (p.op > IBV_WR_RDMA_READ)
        take_atomic(pair, in, p);
    else if (is_send(p))
        take_send(pair, in, p, bytes);
    else
        take_write(pair, in, p, bytes);
}

// go_on sends more of the read that is being answered.
void go_on(Pair *pair, Inbound *in) {
    Answer &a = pair->answer;
    while (a.active && (!in->link.full() || (in->link.flush() && !in->link.full()))) {
        Packet p{};
        p.type = kData;
        p.sequence = a.request.sequence;
        p.length = a.request.length;
        p.offset = a.done;
        p.bytes = std::min(kPayload, p.length - p.offset);
        p.flags = a.done + p.bytes == p.length ? kLast : 0;
        const uint64_t from = a.request.addr + a.done;
        const Region *r = find(true, pair->pd, a.request.rkey, from, p.bytes, IBV_ACCESS_REMOTE_READ);
        uint8_t *to = in->link.add(p);
        if (p.bytes > 0 && (r == nullptr || !load(r, from, to, p.bytes))) {
            in->link.take_back(p.bytes);
            return refuse(pair, in, a.request, IBV_WC_REM_ACCESS_ERR);
        }
        a.done += p.bytes;
        if ((p.flags & kLast) == 0) continue;
        a.active = false;
        served(pair);
    }
}

// greet lets the right requester in, in the right state, and closes the way of any other.
void greet(Pair *pair, Inbound *in, const Packet &p) {
    const bool ready = pair->state == IBV_QPS_RTR || pair->state == IBV_QPS_RTS;
    const ibv_qp_attr &a = pair->attr;
    const bool right = p.number == a.dest_qp_num && int(p.addr) == device_of(a.ah_attr.grh.dgid) && p.sequence == pair->expected;
    if (!ready || !right) {
        in->closing = true;
        return;
    }
    if (pair->active != nullptr) pair->active->closing = true;
    pair->active = in;
    pair->receiving = pair->answer.active = false;
    in->mtu = p.length;
    in->reads = p.offset;
    reply(in, kWelcome, p);
}

void serve(Pair *pair, Inbound *in) {
    Packet p;
    const uint8_t *bytes;
    if (in == pair->active) go_on(pair, in);  // a closing one is active no more
    while (!in->closing && !stalled(pair, in) && in->link.next(&p, &bytes)) {
        if (p.type == kHello) greet(pair, in, p);
        if (p.type == kRequest && in == pair->active) take(pair, in, p, bytes);
        if (in == pair->active) go_on(pair, in);
    }
}

// attend serves a requester until it has nothing more, or the way to it is full. False says that it is gone.
bool attend(Pair *pair, Inbound *in) {
    for (;;) {
        serve(pair, in);
        const bool waits = stalled(pair, in);
        if (!in->link.flush()) return false;
        if (!waits || in->closing || !in->link.done()) return true;
    }
}

void accept_all(Pair *pair) {
    const bool hears = of(pair->context)->device->up && (pair->state == IBV_QPS_RTR || pair->state == IBV_QPS_RTS);
    for (int fd; pair->knocked && (fd = accept4(pair->listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
        auto in = std::make_unique<Inbound>();
        in->link.open(fd);
        if (hears) pair->inbound.push_back(std::move(in));
    }
    pair->knocked = false;
}

}  // namespace

bool stalled(const Pair *pair, const Inbound *in) { return in->link.full() || (in == pair->active && pair->answer.active); }

void respond(Pair *pair) {
    accept_all(pair);
    for (size_t i = 0; i < pair->inbound.size();) {
        Inbound *in = pair->inbound[i].get();
        const bool reached = of(pair->context)->device->up ? attend(pair, in) : in->link.flush();
        if (reached && !in->link.over() && !(in->closing && in->link.done())) {
            i++;
            continue;
        }
        if (in == pair->active) {
            pair->active = nullptr;
            pair->receiving = pair->answer.active = false;
        }
        pair->inbound.erase(pair->inbound.begin() + ptrdiff_t(i));
    }
}

void announce(Pair *pair, bool up) {
    if (pair->active == nullptr) return;
    reply(pair->active, up ? kUp : kDown, {});
    pair->active->link.flush();
}

}  // namespace mori::fake
