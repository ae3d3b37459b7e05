// SPDX-License-Identifier: MIT
// Threads that use the emulated devices at once, each with queue pairs of its own between two contexts, look at every byte, have pairs fail and
// work again, and close everything, while ports go down and devices stand still for moments. Compiled with the library under a sanitizer.
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "../../abi.h"

extern "C" void fake_verbs_port(int device, int up);
extern "C" void fake_verbs_hold(int device, int on);
extern "C" int fake_verbs_objects();

namespace {

constexpr int kThreads = 3, kRounds = 20;
constexpr uint32_t kBytes = 200000;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kReceive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kSend = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

[[noreturn]] void die(const char *what, long value) {
    fprintf(stderr, "%s: %ld, errno %d\n", what, value, errno);
    exit(1);
}

#define OK(call) \
    if (const long code = (call); code != 0) die(#call, code)

template <class T>
T *made(T *object, const char *what) {
    if (object == nullptr) die(what, 0);
    return object;
}

/// One end: a context with all that a queue pair needs.
struct End {
    ibv_context *context;
    ibv_pd *domain;
    ibv_comp_channel *channel;
    ibv_cq *queue;
    ibv_qp *pair;
    ibv_mr *region;
    std::vector<unsigned char> bytes;

    explicit End(int device) : bytes(kBytes) {
        ibv_device **list = made(ibv_get_device_list(nullptr), "ibv_get_device_list");
        context = made(ibv_open_device(list[device]), "ibv_open_device");
        ibv_free_device_list(list);
        domain = made(ibv_alloc_pd(context), "ibv_alloc_pd");
        channel = made(ibv_create_comp_channel(context), "ibv_create_comp_channel");
        queue = made(ibv_create_cq(context, 256, nullptr, channel, 0), "ibv_create_cq");
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = queue;
        init.cap = {64, 64, 2, 2, 64};
        init.qp_type = IBV_QPT_RC;
        pair = made(ibv_create_qp(domain, &init), "ibv_create_qp");
        region = made(ibv_reg_mr(domain, bytes.data(), bytes.size(), kAccess), "ibv_reg_mr");
    }
    End(const End &) = delete;

    ~End() {
        OK(ibv_destroy_qp(pair));
        OK(ibv_dereg_mr(region));
        OK(ibv_destroy_cq(queue));
        OK(ibv_destroy_comp_channel(channel));
        OK(ibv_dealloc_pd(domain));
        OK(ibv_close_device(context));
    }

    void connect(const End &peer) {
        ibv_qp_attr a{};
        OK(ibv_modify_qp(pair, &a, IBV_QP_STATE));
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        a.qp_access_flags = kAccess;
        OK(ibv_modify_qp(pair, &a, kInit));
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = IBV_MTU_1024;
        a.dest_qp_num = peer.pair->qp_num;
        a.max_dest_rd_atomic = a.max_rd_atomic = 4;
        a.min_rnr_timer = 1;
        a.ah_attr.is_global = a.ah_attr.port_num = 1;
        OK(ibv_query_gid(peer.context, 1, 1, &a.ah_attr.grh.dgid));
        a.ah_attr.grh.sgid_index = 1;
        OK(ibv_modify_qp(pair, &a, kReceive));
        a.qp_state = IBV_QPS_RTS;
        a.timeout = 0;  // it waits for ports to come up again
        a.retry_cnt = a.rnr_retry = 7;
        OK(ibv_modify_qp(pair, &a, kSend));
    }

    void post(ibv_wr_opcode op, uint32_t at, uint32_t n, const End &peer, uint32_t key) {
        ibv_sge sge{uint64_t(bytes.data()) + at, n, region->lkey};
        ibv_send_wr wr{}, *bad;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = op;
        wr.send_flags = IBV_SEND_SIGNALED | (op == IBV_WR_RDMA_WRITE ? IBV_SEND_FENCE : 0);
        wr.wr.rdma.remote_addr = uint64_t(peer.bytes.data()) + at;
        wr.wr.rdma.rkey = key;
        OK(ibv_post_send(pair, &wr, &bad));
    }

    void receive(uint32_t at, uint32_t n) {
        ibv_sge sge{uint64_t(bytes.data()) + at, n, region->lkey};
        ibv_recv_wr wr{0, nullptr, &sge, 1}, *bad;
        OK(ibv_post_recv(pair, &wr, &bad));
    }

    /// Waits for the next completion, by its event.
    int next() {
        ibv_wc wc;
        for (int tries = 0; tries < 2000; tries++) {
            if (ibv_poll_cq(queue, 1, &wc) == 1) return wc.status;
            OK(ibv_req_notify_cq(queue, 0));
            if (ibv_poll_cq(queue, 1, &wc) == 1) return wc.status;
            pollfd p{channel->fd, POLLIN, 0};
            if (poll(&p, 1, 10) == 1) {
                ibv_cq *cq;
                void *token;
                OK(ibv_get_cq_event(channel, &cq, &token));
                ibv_ack_cq_events(cq, 1);
            }
        }
        die("no completion", 0);
    }

    /// Reads events until one is of a type, and waits for it.
    void hear(ibv_event_type type) {
        for (ibv_async_event event{{}, IBV_EVENT_PORT_ERR}; event.event_type != type; ibv_ack_async_event(&event))
            OK(ibv_get_async_event(context, &event));
    }

    void want(int status) {
        if (const int got = next(); got != status) die(ibv_wc_status_str(ibv_wc_status(got)), status);
    }
};

void look(const End &end, uint32_t from, uint32_t upto, unsigned char value) {
    for (uint32_t i = from; i < upto; i++)
        if (end.bytes[i] != value) die("a byte is wrong", long(i));
}

void rounds(End &a, End &b, int me) {
    for (int i = 0; i < kRounds; i++) {
        const auto value = static_cast<unsigned char>(1 + i * kThreads + me);
        a.connect(b);
        b.connect(a);
        std::fill(a.bytes.begin(), a.bytes.end(), value);
        a.post(IBV_WR_RDMA_WRITE, 0, kBytes, b, b.region->rkey);
        a.want(IBV_WC_SUCCESS);
        look(b, 0, kBytes, value);
        std::fill(b.bytes.begin(), b.bytes.end(), static_cast<unsigned char>(~value));
        a.post(IBV_WR_RDMA_READ, 0, kBytes, b, b.region->rkey);
        a.want(IBV_WC_SUCCESS);
        look(a, 0, kBytes, static_cast<unsigned char>(~value));
        a.post(IBV_WR_SEND, 0, 1000, b, 0);
        usleep(200);
        b.receive(1000, 1000);
        a.want(IBV_WC_SUCCESS);
        b.want(IBV_WC_SUCCESS);
        b.receive(0, 8);
        a.post(IBV_WR_RDMA_WRITE, 0, 1000, b, b.region->lkey);  // which is no remote key
        a.post(IBV_WR_RDMA_WRITE, 0, 1000, b, b.region->rkey);
        a.want(IBV_WC_REM_ACCESS_ERR);
        a.want(IBV_WC_WR_FLUSH_ERR);
        b.want(IBV_WC_WR_FLUSH_ERR);
        b.hear(IBV_EVENT_QP_ACCESS_ERR);
    }
}

void run(int me) {
    for (int again = 0; again < 2; again++) {
        End a(me % 2), b(1);
        rounds(a, b, me);
    }
}

// forked has a child come with an object of this process, and end; the object is as it was.
void forked() {
    End a(0), b(1);
    a.connect(b);
    b.connect(a);
    const pid_t child = fork();
    if (child == 0) {
        const rlimit none{0, 0};  // no core file
        setrlimit(RLIMIT_CORE, &none);
        _exit(ibv_alloc_pd(a.context) != nullptr ? 0 : 1);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) die("a child that used its parent's context ended with", status);
    a.post(IBV_WR_RDMA_WRITE, 0, 8, b, b.region->rkey);
    a.want(IBV_WC_SUCCESS);
}

}  // namespace

int main() {
    std::vector<std::thread> threads;
    std::atomic<int> running{kThreads};
    for (int i = 0; i < kThreads; i++)
        threads.emplace_back([i, &running] {
            run(i);
            running--;
        });
    for (int i = 0; running > 0; i++) {
        fake_verbs_hold(i % 2, 1);
        fake_verbs_port(i / 2 % 2, 0);
        usleep(300);
        fake_verbs_hold(i % 2, 0);
        fake_verbs_port(i / 2 % 2, 1);
        usleep(2000);
    }
    for (auto &t : threads) t.join();
    forked();
    if (fake_verbs_objects() != 0) die("objects were left", fake_verbs_objects());
    puts("every byte was right");
    return 0;
}
