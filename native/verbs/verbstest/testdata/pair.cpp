// SPDX-License-Identifier: MIT
// Queue pairs: their life, and what is posted to them.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "world.hpp"

namespace mori::fake {

uint32_t bytes_of(ibv_mtu mtu) { return 128u << mtu; }

namespace {

// The name that a pair listens by is one of the host: two pairs of a device, in any processes, never have one number.
socklen_t address(sockaddr_un *at, int device, uint32_t number) {
    *at = {};
    at->sun_family = AF_UNIX;
    const int n = snprintf(at->sun_path + 1, sizeof at->sun_path - 1, "mori-emulated-verbs/emu%d/%06x", device, number);
    return socklen_t(offsetof(sockaddr_un, sun_path) + 1 + size_t(n));
}

int opened() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

}  // namespace

int listen_as(int device, uint32_t number) {
    sockaddr_un at;
    const socklen_t n = address(&at, device, number);
    const int fd = opened();
    if (fd < 0) return -1;
    if (bind(fd, reinterpret_cast<sockaddr *>(&at), n) == 0 && listen(fd, 16) == 0) return fd;
    const int code = errno;
    close(fd);
    errno = code;
    return -1;
}

int connect_to(int device, uint32_t number) {
    sockaddr_un at;
    const socklen_t n = address(&at, device, number);
    const int fd = opened();
    if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr *>(&at), n) == 0) return fd;
    close(fd);
    return -1;
}

// A responder's way stays open until the last word is out, if there is one. What the worker waits for is closed only when it has returned.
void drop_ways(Pair *pair) {
    if (pair->life != Life::kForked) rouse(of(pair->context));
    pair->out.close();
    pair->welcome = pair->receiving = false;
    pair->active = nullptr;
    pair->answer.active = false;
    if (of(pair->context)->dead || pair->life != Life::kAlive) {
        pair->inbound.clear();
        if (pair->listener >= 0) close(pair->listener);
        pair->listener = -1;
        return;
    }
    for (auto &in : pair->inbound) in->closing = true;
}

void fail(Pair *pair) {
    pair->state = pair->attr.qp_state = IBV_QPS_ERR;
    drop_ways(pair);
}

namespace {

constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kReceive = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kSend = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

/// A change of state: what it must be told, and what it may be told besides.
struct Change {
    ibv_qp_state from, to;
    int must, may;
};
constexpr Change kChanges[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInit, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit},
    {IBV_QPS_INIT, IBV_QPS_RTR, kReceive, IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_RTR, IBV_QPS_RTS, kSend, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

bool allowed(ibv_qp_state from, ibv_qp_state to, int mask) {
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return mask == 0;
    for (const Change &c : kChanges)
        if (c.from == from && c.to == to) return (mask & c.must) == c.must && (mask & ~(c.must | c.may)) == 0;
    return false;
}

bool sane_path(const Context *c, const ibv_ah_attr &path) {
    const ibv_gid none{};
    const int index = path.grh.sgid_index;
    return path.is_global == 1 && path.port_num == 1 && path.sl < 16 && index < kGids && c->device->gids[index] &&
           memcmp(&path.grh.dgid, &none, sizeof none) != 0;
}

bool sane(const Context *c, const ibv_qp_attr &a, int mask) {
    const auto bad = [mask](int bit, bool wrong) { return (mask & bit) != 0 && wrong; };
    const int mtu = limit("active_mtu", IBV_MTU_1024), serves = limit("max_qp_rd_atom", 16), asks = limit("max_qp_init_rd_atom", 16);
    return !bad(IBV_QP_PORT, a.port_num != 1) && !bad(IBV_QP_PKEY_INDEX, a.pkey_index != 0) &&
           !bad(IBV_QP_AV, !sane_path(c, a.ah_attr)) && !bad(IBV_QP_PATH_MTU, a.path_mtu < IBV_MTU_256 || int(a.path_mtu) > mtu) &&
           !bad(IBV_QP_DEST_QPN, a.dest_qp_num > kSequences) && !bad(IBV_QP_MIN_RNR_TIMER, a.min_rnr_timer > 31) &&
           !bad(IBV_QP_MAX_DEST_RD_ATOMIC, a.max_dest_rd_atomic > serves) && !bad(IBV_QP_MAX_QP_RD_ATOMIC, a.max_rd_atomic > asks) &&
           !bad(IBV_QP_TIMEOUT, a.timeout > 31) && !bad(IBV_QP_RETRY_CNT, a.retry_cnt > 7) && !bad(IBV_QP_RNR_RETRY, a.rnr_retry > 7);
}

template <class T>
void take(T &to, const T &from, int mask, int bit) {
    if ((mask & bit) != 0) to = from;
}

void adopt(Pair *pair, const ibv_qp_attr &a, int mask) {
    ibv_qp_attr &to = pair->attr;
    take(to.port_num, a.port_num, mask, IBV_QP_PORT);
    take(to.qp_access_flags, a.qp_access_flags, mask, IBV_QP_ACCESS_FLAGS);
    take(to.ah_attr, a.ah_attr, mask, IBV_QP_AV);
    take(to.path_mtu, a.path_mtu, mask, IBV_QP_PATH_MTU);
    take(to.dest_qp_num, a.dest_qp_num, mask, IBV_QP_DEST_QPN);
    take(to.rq_psn, a.rq_psn, mask, IBV_QP_RQ_PSN);
    take(to.sq_psn, a.sq_psn, mask, IBV_QP_SQ_PSN);
    take(to.max_dest_rd_atomic, a.max_dest_rd_atomic, mask, IBV_QP_MAX_DEST_RD_ATOMIC);
    take(to.max_rd_atomic, a.max_rd_atomic, mask, IBV_QP_MAX_QP_RD_ATOMIC);
    take(to.min_rnr_timer, a.min_rnr_timer, mask, IBV_QP_MIN_RNR_TIMER);
    take(to.timeout, a.timeout, mask, IBV_QP_TIMEOUT);
    take(to.retry_cnt, a.retry_cnt, mask, IBV_QP_RETRY_CNT);
    take(to.rnr_retry, a.rnr_retry, mask, IBV_QP_RNR_RETRY);
    if ((mask & IBV_QP_RQ_PSN) != 0) pair->expected = a.rq_psn & kSequences;
    if ((mask & IBV_QP_SQ_PSN) != 0) pair->first = a.sq_psn & kSequences;
    if ((mask & IBV_QP_RNR_RETRY) != 0) pair->rnr_left = a.rnr_retry;
}

// empty takes away all that was posted, and the completions that were not polled.
void empty(Pair *pair) {
    drop_ways(pair);
    forget(pair);
    pair->sends.clear();
    pair->recvs.clear();
    pair->sends_freed = pair->sends_posted;
    pair->recvs_freed = pair->recvs_posted;
    pair->sent = 0;
    pair->offset = 0;
    pair->deadline = pair->again = {};
    pair->peer_down = false;
}

}  // namespace

int post_one(Pair *pair, const ibv_send_wr &wr);

int post_send(ibv_qp *given, ibv_send_wr *wr, ibv_send_wr **bad) {
    const Lock held(world().lock);
    Pair *pair = alive<Pair>(given, "ibv_post_send");
    int code = refused("ibv_post_send", of(pair->context));
    const uint64_t before = pair->sends_posted;
    for (; wr != nullptr && code == 0; wr = code == 0 ? wr->next : wr) code = post_one(pair, *wr);
    if (code != 0) *bad = wr;
    note("posted", pair->sends_posted - before);
    rouse(of(pair->context));
    return code;
}

namespace {

bool inlinable(ibv_wr_opcode op) { return op <= IBV_WR_SEND_WITH_IMM; }

int refusal(const Pair *pair, const ibv_send_wr &wr) {
    if (pair->state != IBV_QPS_RTS && pair->state != IBV_QPS_ERR) return EINVAL;
    if (wr.opcode > IBV_WR_ATOMIC_FETCH_AND_ADD || wr.num_sge < 0 || uint32_t(wr.num_sge) > pair->init.cap.max_send_sge) return EINVAL;
    return pair->sends_posted - pair->sends_freed >= pair->init.cap.max_send_wr ? ENOMEM : 0;
}

}  // namespace

int post_one(Pair *pair, const ibv_send_wr &wr) {
    if (const int code = refusal(pair, wr); code != 0) return code;
    Send send{wr, std::vector<ibv_sge>(wr.sg_list, wr.sg_list + wr.num_sge), "", 0, pair->sends_posted + 1, 0};
    const uint64_t bytes = total(send.sges);
    const bool atomic = wr.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP;
    if (bytes > uint32_t(limit("max_msg_sz", kMaxMessage)) || (atomic && bytes != 8)) return EINVAL;
    if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
        if (!inlinable(wr.opcode) || bytes > pair->init.cap.max_inline_data) return EINVAL;
        for (const ibv_sge &s : send.sges) send.inlined.append(reinterpret_cast<const char *>(s.addr), s.length);
    }
    send.length = uint32_t(bytes);
    note("num_sge", uint64_t(wr.num_sge));
    note("length", bytes);
    pair->sends_posted++;
    pair->sends.push_back(std::move(send));
    return 0;
}

int post_recv(ibv_qp *given, ibv_recv_wr *wr, ibv_recv_wr **bad) {
    const Lock held(world().lock);
    Pair *pair = alive<Pair>(given, "ibv_post_recv");
    int code = refused("ibv_post_recv", of(pair->context));
    for (; wr != nullptr; wr = wr->next) {
        const ibv_qp_cap &cap = pair->init.cap;
        if (code == 0 && (pair->state == IBV_QPS_RESET || wr->num_sge < 0 || uint32_t(wr->num_sge) > cap.max_recv_sge)) code = EINVAL;
        if (code == 0 && pair->recvs_posted - pair->recvs_freed >= cap.max_recv_wr) code = ENOMEM;
        if (code != 0) {
            *bad = wr;
            break;
        }
        pair->recvs.push_back({wr->wr_id, std::vector<ibv_sge>(wr->sg_list, wr->sg_list + wr->num_sge), ++pair->recvs_posted});
    }
    if (pair->state == IBV_QPS_ERR) rouse(of(pair->context));
    return code;
}

namespace {

int creatable(const Context *c, const ibv_qp_init_attr &init) {
    if (const int code = refused("ibv_create_qp", c); code != 0) return code;
    if (init.qp_type != IBV_QPT_RC) return EOPNOTSUPP;
    if (init.srq != nullptr) return ENOSYS;
    const uint32_t wrs = uint32_t(limit("max_qp_wr", 16384)), sges = uint32_t(limit("max_sge", 30));
    const ibv_qp_cap &cap = init.cap;
    if (cap.max_send_wr > wrs || cap.max_recv_wr > wrs || cap.max_send_sge > sges || cap.max_recv_sge > sges) return EINVAL;
    if (cap.max_inline_data > uint32_t(limit("max_inline", 512))) return EINVAL;
    return int(c->pairs.size()) >= limit("max_qp", 4096) ? ENOMEM : 0;
}

// number gives a pair a number that no other of the device has on this host.
int number(Pair *pair, const Device *device) {
    static std::minstd_rand random{std::random_device{}()};
    for (int tries = 0; tries < 1000; tries++) {
        pair->qp_num = 0x100 + uint32_t(random()) % (kSequences - 0x100);
        pair->listener = listen_as(device->index, pair->qp_num);
        if (pair->listener >= 0) return 0;
        if (errno != EADDRINUSE) return errno;
    }
    return ENOMEM;
}

}  // namespace
}  // namespace mori::fake

using namespace mori::fake;

extern "C" {

ibv_qp *ibv_create_qp(ibv_pd *given, ibv_qp_init_attr *init) {
    const Lock held(world().lock);
    auto *domain = alive<Domain>(given, "ibv_create_qp");
    Context *c = of(domain->context);
    Queue *send = alive<Queue>(init->send_cq, "ibv_create_qp"), *recv = alive<Queue>(init->recv_cq, "ibv_create_qp");
    auto pair = std::make_unique<Pair>();
    int code = creatable(c, *init);
    if (code == 0) code = number(pair.get(), c->device);
    if (code != 0) {
        errno = code;
        return nullptr;
    }
    note("max_send_wr", init->cap.max_send_wr);
    note("max_recv_wr", init->cap.max_recv_wr);
    note("max_send_sge", init->cap.max_send_sge);
    note("max_inline_data", init->cap.max_inline_data);
    init->cap.max_send_wr = std::max(init->cap.max_send_wr, 1u);
    init->cap.max_send_sge = std::max(init->cap.max_send_sge, 1u);
    init->cap.max_inline_data = std::max(init->cap.max_inline_data, 64u);
    pair->init = *init;
    pair->context = c;
    pair->qp_context = init->qp_context;
    pair->pd = domain;
    pair->send_cq = send;
    pair->recv_cq = recv;
    pair->handle = pair->qp_num;
    pair->qp_type = init->qp_type;
    domain->users++;
    send->users++;
    recv->users++;
    c->pairs[pair->qp_num] = pair.get();
    rouse(c);
    return pair.release();
}

int ibv_modify_qp(ibv_qp *given, ibv_qp_attr *attr, int mask) {
    const Lock held(world().lock);
    Pair *pair = alive<Pair>(given, "ibv_modify_qp");
    Context *c = of(pair->context);
    if (const int code = refused("ibv_modify_qp", c); code != 0) return code;
    const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : pair->state;
    mask &= ~IBV_QP_STATE;
    if ((mask & IBV_QP_CUR_STATE) != 0 && attr->cur_qp_state != pair->state) return EINVAL;
    if (!allowed(pair->state, to, mask) || !sane(c, *attr, mask)) return EINVAL;
    adopt(pair, *attr, mask);
    if (to == IBV_QPS_RTR) {
        note("sl", attr->ah_attr.sl);
        note("traffic_class", attr->ah_attr.grh.traffic_class);
        note("sgid_index", attr->ah_attr.grh.sgid_index);
        note("path_mtu", bytes_of(attr->path_mtu));
    }
    if (to == IBV_QPS_ERR && pair->state != to) fail(pair);
    if (to == IBV_QPS_RESET) empty(pair);
    pair->state = pair->attr.qp_state = to;
    rouse(c);
    return 0;
}

int ibv_query_qp(ibv_qp *given, ibv_qp_attr *attr, int, ibv_qp_init_attr *init) {
    const Lock held(world().lock);
    Pair *pair = alive<Pair>(given, "ibv_query_qp");
    if (const int code = refused("ibv_query_qp", of(pair->context)); code != 0) return code;
    *attr = pair->attr;
    attr->cap = pair->init.cap;
    attr->cur_qp_state = pair->state;
    *init = pair->init;
    return 0;
}

int ibv_destroy_qp(ibv_qp *given) {
    Lock held(world().lock);
    Pair *pair = alive<Pair>(given, "ibv_destroy_qp");
    Context *c = of(pair->context);
    if (const int code = told("ibv_destroy_qp"); code != 0) return code;
    pair->state = IBV_QPS_RESET;
    empty(pair);
    settle_events(held, pair);
    pair->life = Life::kDestroyed;
    drop_ways(pair);
    c->pairs.erase(pair->qp_num);
    static_cast<Domain *>(pair->pd)->users--;
    of(pair->send_cq)->users--;
    of(pair->recv_cq)->users--;
    bury(pair);
    return 0;
}
}
