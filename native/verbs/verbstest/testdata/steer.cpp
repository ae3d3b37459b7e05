// SPDX-License-Identifier: MIT
//
// What the emulated devices are told, by the environment, read at each call, and by functions of the library:
//   FAKE_VERBS             "ibv_reg_mr=12,ibv_poll_cq=5": these calls answer these errnos and do nothing
//   FAKE_VERBS_COUNT       the number of devices, 2 if unset
//   FAKE_VERBS_LIMITS      "max_mr_size=65536,max_qp_wr=16": what ibv_query_device tells, by its names, and max_inline
//   FAKE_VERBS_SEED        unless 0 or unset, all that devices do begins after random delays that follow from this number
//   FAKE_VERBS_TIMEOUT_MS  the longest that one retry of requests lasts, 50 if unset, whatever a queue pair's timeout says
//   FAKE_VERBS_RNR_MS      the same for a receiver that is not ready, 2 if unset
//   FAKE_VERBS_PEERMEM     1: there is a module by which ibv_reg_mr takes memory of an emulated GPU
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "world.hpp"

namespace mori::fake {

void misuse(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "emulated verbs: %s\n", text);
    abort();
}

World &world() {
    static World *const all = new World;
    return *all;
}

namespace {

// value finds name=number in a list, whose items are set apart by commas.
const char *value(const char *list, const char *name) {
    const size_t n = strlen(name);
    for (const char *p = list; n > 0 && p != nullptr && *p != 0; p = strchr(p, ',') != nullptr ? strchr(p, ',') + 1 : nullptr)
        if (strncmp(p, name, n) == 0 && p[n] == '=') return p + n + 1;
    return nullptr;
}

// each calls with every context of a device, while the lock is held.
template <class Do>
void each(int device, Do call) {
    if (device < 0 || device >= kDevices) misuse("there is no device emu%d", device);
    for (Context *c : world().contexts)
        if (c->device->index == device) call(c);
}

}  // namespace

void note(const char *name, uint64_t value) {
    uint64_t &most = world().asked[name];
    most = std::max(most, value);
}

int told(const char *call, const char *otherwise) {
    const char *all = getenv("FAKE_VERBS"), *code = value(all, call);
    if (code == nullptr) code = value(all, otherwise);
    return code != nullptr ? atoi(code) : 0;
}

uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != nullptr && *text != 0 ? strtoull(text, nullptr, 0) : otherwise;
}

uint64_t big_limit(const char *name, uint64_t otherwise) {
    const char *text = value(getenv("FAKE_VERBS_LIMITS"), name);
    return text != nullptr ? strtoull(text, nullptr, 0) : otherwise;
}

int limit(const char *name, int otherwise) { return int(big_limit(name, uint64_t(otherwise))); }

int refused(const char *call, const Context *context, const char *otherwise) {
    const int code = told(call, otherwise);
    return code != 0 ? code : context->dead ? EIO : 0;
}

int devices() { return int(std::min<uint64_t>(setting("FAKE_VERBS_COUNT", 2), kDevices)); }

}  // namespace mori::fake

using namespace mori::fake;

extern "C" {

/// Takes the link of a device's port away, or brings it back: events tell of it, and what is sent meanwhile is lost.
void fake_verbs_port(int device, int up) {
    const Lock held(world().lock);
    each(device, [&](Context *c) {
        if (c->device->up == (up != 0)) return;
        for (auto &[number, pair] : c->pairs) announce(pair, up != 0);
        ibv_async_event event{};
        event.element.port_num = 1;
        raise(c, up != 0 ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, event);
        rouse(c);
    });
    world().devices[device].up = up != 0;
}

/// Takes a device out: its contexts answer EIO for good. It may be put in again, for contexts that are opened then.
void fake_verbs_remove(int device, int gone) {
    const Lock held(world().lock);
    each(device, [&](Context *c) {
        if (gone == 0 || c->dead) return;
        c->dead = true;
        for (auto &[number, pair] : c->pairs) drop_ways(pair);
        raise(c, IBV_EVENT_DEVICE_FATAL);
        rouse(c);
    });
    world().devices[device].gone = gone != 0;
}

/// Has nothing move on a device, until it may again. Nothing times out meanwhile.
void fake_verbs_hold(int device, int on) {
    const Lock held(world().lock);
    each(device, [](Context *c) { rouse(c); });
    world().devices[device].held = on != 0;
}

/// Takes an entry out of a device's GID table, or puts it back.
void fake_verbs_gid(int device, int index, int there) {
    const Lock held(world().lock);
    if (index < 0 || index >= kGids) misuse("a device has no GID %d", index);
    each(device, [&](Context *c) {
        ibv_async_event event{};
        event.element.port_num = 1;
        raise(c, IBV_EVENT_GID_CHANGE, event);
        rouse(c);
    });
    world().devices[device].gids[index] = there != 0;
}

/// Has the next work request with this opcode, of enum ibv_wr_opcode, complete with a status without being done.
void fake_verbs_fail_next(int op, int status) {
    const Lock held(world().lock);
    world().fail_op = op;
    world().fail_status = status;
}

/// The bytes of work requests of this process that a device has done.
uint64_t fake_verbs_bytes(int device) {
    const Lock held(world().lock);
    each(device, [](Context *) {});
    return world().devices[device].bytes;
}

/// The largest number of a name that was asked for since the last call for it: the fields of ibv_qp_cap, "cqe", "sl", "traffic_class", "sgid_index",
/// "path_mtu" (bytes), "num_sge" and "length" of a request to send, "posted" with one call, "access" of a region, "dmabuf" (the bytes of one that is of a dma-buf).
uint64_t fake_verbs_most(const char *name) {
    const Lock held(world().lock);
    const auto found = world().asked.find(name);
    if (found == world().asked.end()) return 0;
    const uint64_t most = found->second;
    world().asked.erase(found);
    return most;
}

/// The objects that were made and not destroyed.
int fake_verbs_objects() {
    const Lock held(world().lock);
    int n = int(world().local.size());
    for (const Context *c : world().contexts) n += 1 + c->domains + c->channels + int(c->pairs.size() + c->queues.size());
    return n;
}
}
