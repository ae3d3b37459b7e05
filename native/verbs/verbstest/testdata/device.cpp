// SPDX-License-Identifier: MIT
// Devices, what they tell of themselves, and contexts.
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "world.hpp"

namespace mori::fake {

// gid_of is a device's GID: its link-local one, that of an IPv4 address, that of an IPv6 address.
ibv_gid gid_of(int device, int index) {
    static const uint8_t prefixes[kGids][12] = {
        {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0xe0, 0x0e, 0, 0xff}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, {0xfd, 0, 0, 0xe0, 0x0e}};
    static const uint8_t ends[kGids][4] = {{0xfe, 0, 0, 0}, {198, 18, 0, 10}, {0, 0, 0, 0x10}};
    ibv_gid gid{};
    memcpy(gid.raw, prefixes[index], 12);
    memcpy(gid.raw + 12, ends[index], 4);
    gid.raw[14] = uint8_t(device);
    return gid;
}

int device_of(const ibv_gid &gid) {
    for (int device = 0; device < kDevices; device++)
        for (int index = 0; index < kGids; index++)
            if (const ibv_gid has = gid_of(device, index); memcmp(&has, &gid, sizeof gid) == 0) return device;
    return -1;
}

void raise(Context *context, ibv_event_type type, ibv_async_event event) {
    event.event_type = type;
    context->events.push(event);
}

void rouse(Context *context) {
    const uint64_t one = 1;
    if (write(context->wake, &one, sizeof one) < 0) misuse("wake the worker of %s: errno %d", context->device->name, errno);
}

namespace {

uint64_t guid_of(int device) { return htobe64(0x00e00efffe000000 + uint64_t(device)); }

void before_fork() { world().lock.lock(); }
void after_fork() { world().lock.unlock(); }

// in_child leaves queue pairs to the process that forked: its peers see their ends when it ends, and not when its children do.
void in_child() {
    for (Context *c : world().contexts) {
        for (auto &[number, pair] : c->pairs) {
            pair->life = Life::kForked;
            drop_ways(pair);
        }
        for (Queue *q : c->queues) q->life = Life::kForked;
        c->life = Life::kForked;
    }
    for (auto &[key, region] : world().local) region->life = Life::kForked;
    world().contexts.clear();
    world().local.clear();
    world().remote.clear();
    world().lock.unlock();
}

__attribute__((constructor)) void loaded() { pthread_atfork(before_fork, after_fork, in_child); }

void name(Device *device, int index) {
    device->index = index;
    device->node_type = IBV_NODE_CA;
    device->transport_type = IBV_TRANSPORT_IB;
    snprintf(device->name, sizeof device->name, "emu%d", index);
    snprintf(device->dev_name, sizeof device->dev_name, "emulated%d", index);
    snprintf(device->dev_path, sizeof device->dev_path, "/sys/class/infiniband_verbs/emulated%d", index);
    snprintf(device->ibdev_path, sizeof device->ibdev_path, "/sys/class/infiniband/emu%d", index);
}

int never_bind(ibv_qp *, ibv_mw *, ibv_mw_bind *) { return EOPNOTSUPP; }
int never_post(ibv_srq *, ibv_recv_wr *wr, ibv_recv_wr **bad) {
    *bad = wr;
    return ENOSYS;
}

}  // namespace

// The header's inline functions call these. In pair.cpp and queue.cpp.
int post_send(ibv_qp *pair, ibv_send_wr *wr, ibv_send_wr **bad);
int post_recv(ibv_qp *pair, ibv_recv_wr *wr, ibv_recv_wr **bad);
int poll_queue(ibv_cq *queue, int n, ibv_wc *out);
int arm_queue(ibv_cq *queue, int solicited);

}  // namespace mori::fake

using namespace mori::fake;

extern "C" {

ibv_device **ibv_get_device_list(int *count) {
    if (const int code = told("ibv_get_device_list"); code != 0) return no<ibv_device *>(code);
    const Lock held(world().lock);
    auto **list = static_cast<ibv_device **>(calloc(kDevices + 1, sizeof(ibv_device *)));
    int n = 0;
    for (int i = 0; i < devices(); i++)
        if (Device *d = &world().devices[i]; !d->gone) {
            name(d, i);
            list[n++] = d;
        }
    if (count != nullptr) *count = n;
    return list;
}

void ibv_free_device_list(ibv_device **list) { free(list); }
const char *ibv_get_device_name(ibv_device *device) { return device->name; }
int ibv_get_device_index(ibv_device *device) { return static_cast<Device *>(device)->index + 1; }
__be64 ibv_get_device_guid(ibv_device *device) { return guid_of(static_cast<Device *>(device)->index); }

ibv_context *ibv_open_device(ibv_device *given) {
    const int code = told("ibv_open_device");
    auto *device = static_cast<Device *>(given);
    const Lock held(world().lock);
    if (code != 0 || device->gone) return no<ibv_context>(code != 0 ? code : ENODEV);
    auto *c = new Context(device, eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    c->ibv_context::device = device;
    c->cmd_fd = -1;
    c->async_fd = c->events.fd;
    c->num_comp_vectors = 1;
    pthread_mutex_init(&c->mutex, nullptr);
    c->ops.poll_cq = poll_queue;
    c->ops.req_notify_cq = arm_queue;
    c->ops.post_send = post_send;
    c->ops.post_recv = post_recv;
    c->ops.post_srq_recv = never_post;
    c->ops.bind_mw = never_bind;
    c->random.seed(unsigned(setting("FAKE_VERBS_SEED", 0)) * 31 + unsigned(device->index) + 1);
    world().contexts.push_back(c);
    sigset_t all, before;  // signals are for the program's threads
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    c->worker = std::thread(work, c);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return c;
}

int ibv_close_device(ibv_context *given) {
    Lock held(world().lock);
    Context *c = alive<Context>(given, "ibv_close_device");
    if (c->domains + c->channels > 0 || !c->pairs.empty() || !c->queues.empty()) return errno = EBUSY;
    c->stop = true;
    rouse(c);
    auto &all = world().contexts;
    all.erase(std::find(all.begin(), all.end(), c));
    c->life = Life::kDestroyed;
    held.unlock();
    c->worker.join();
    close(c->wake);
    close(c->async_fd);
    held.lock();
    bury(c);
    return 0;
}

int ibv_query_device(ibv_context *given, ibv_device_attr *attr) {
    const Lock held(world().lock);
    Context *c = alive<Context>(given, "ibv_query_device");
    if (const int code = refused("ibv_query_device", c); code != 0) return code;
    *attr = {};
    snprintf(attr->fw_ver, sizeof attr->fw_ver, "0.0.1");
    attr->node_guid = attr->sys_image_guid = guid_of(c->device->index);
    attr->max_mr_size = big_limit("max_mr_size", ~uint64_t(0));
    attr->page_size_cap = 0xfffff000;
    attr->vendor_id = 0xe00e;
    attr->vendor_part_id = 1;
    attr->max_qp = limit("max_qp", 4096);
    attr->max_qp_wr = limit("max_qp_wr", 16384);
    attr->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_PORT_ACTIVE_EVENT;
    attr->max_sge = attr->max_sge_rd = limit("max_sge", 30);
    attr->max_cq = limit("max_cq", 4096);
    attr->max_cqe = limit("max_cqe", 32767);
    attr->max_mr = limit("max_mr", 1 << 17);
    attr->max_pd = limit("max_pd", 4096);
    attr->max_qp_rd_atom = limit("max_qp_rd_atom", 16);
    attr->max_qp_init_rd_atom = limit("max_qp_init_rd_atom", 16);
    attr->max_res_rd_atom = 16 * attr->max_qp;
    attr->atomic_cap = ibv_atomic_cap(limit("atomic_cap", IBV_ATOMIC_HCA));
    attr->max_pkeys = 1;
    attr->phys_port_cnt = 1;
    return 0;
}

// The caller's struct may be as short as it was once: it ends with flags.
int ibv_query_port(ibv_context *given, uint8_t number, ibv_port_attr *out) {
    const Lock held(world().lock);
    Context *c = alive<Context>(given, "ibv_query_port");
    if (const int code = refused("ibv_query_port", c); code != 0) return code;
    if (number != 1) return EINVAL;
    ibv_port_attr attr{};
    attr.state = c->device->up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    attr.max_mtu = IBV_MTU_4096;
    attr.active_mtu = ibv_mtu(limit("active_mtu", IBV_MTU_1024));
    attr.gid_tbl_len = kGidTable;
    attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    attr.max_msg_sz = uint32_t(limit("max_msg_sz", kMaxMessage));
    attr.pkey_tbl_len = 1;
    attr.max_vl_num = 1;
    attr.active_width = 2;  // 4 lanes
    attr.active_speed = 32;  // of 25 Gbit/s
    attr.phys_state = c->device->up ? 5 : 3;
    attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    memcpy(static_cast<void *>(out), &attr, offsetof(ibv_port_attr, port_cap_flags2));
    return 0;
}

int ibv_query_pkey(ibv_context *, uint8_t, int index, __be16 *pkey) {
    *pkey = 0xffff;
    return index == 0 ? 0 : EINVAL;
}

int ibv_query_gid(ibv_context *given, uint8_t port, int index, ibv_gid *gid) {
    const Lock held(world().lock);
    Context *c = alive<Context>(given, "ibv_query_gid");
    int code = refused("ibv_query_gid", c);
    if (code == 0 && (port != 1 || index < 0 || index >= kGidTable)) code = EINVAL;
    if (code != 0) {
        errno = code;
        return -1;
    }
    *gid = index < kGids && c->device->gids[index] ? gid_of(c->device->index, index) : ibv_gid{};
    return 0;
}

ssize_t _ibv_query_gid_table(ibv_context *given, ibv_gid_entry *entries, size_t most, uint32_t flags, size_t size) {
    const Lock held(world().lock);
    Context *c = alive<Context>(given, "_ibv_query_gid_table");
    if (const int code = refused("ibv_query_gid_table", c, "ibv_query_gid"); code != 0) return -code;
    if (flags != 0 || size < sizeof(ibv_gid_entry)) return -EOPNOTSUPP;
    size_t n = 0;
    for (int i = 0; i < kGids; i++) {
        if (!c->device->gids[i]) continue;
        if (n == most) return -EINVAL;
        auto *entry = reinterpret_cast<ibv_gid_entry *>(reinterpret_cast<char *>(entries) + n++ * size);
        *entry = {gid_of(c->device->index, i), uint32_t(i), 1, IBV_GID_TYPE_ROCE_V2, if_nametoindex("lo")};
    }
    return ssize_t(n);
}

int _ibv_query_gid_ex(ibv_context *given, uint32_t port, uint32_t index, ibv_gid_entry *entry, uint32_t flags, size_t) {
    const Lock held(world().lock);
    Context *c = alive<Context>(given, "_ibv_query_gid_ex");
    if (const int code = refused("ibv_query_gid_ex", c, "ibv_query_gid"); code != 0) return code;
    if (flags != 0 || port != 1 || index >= kGidTable) return EINVAL;
    if (index >= kGids || !c->device->gids[index]) return ENODATA;
    *entry = {gid_of(c->device->index, int(index)), index, port, IBV_GID_TYPE_ROCE_V2, if_nametoindex("lo")};
    return 0;
}

int ibv_fork_init() { return told("ibv_fork_init"); }
ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
}
