// SPDX-License-Identifier: MIT
// What the emulated devices are made of. One lock, World::lock, protects all of it; who waits lets it go. Objects that were destroyed are kept,
// empty, so that using them again is found and told.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../../abi.h"
#include "link.hpp"

namespace mori::fake {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Lock = std::unique_lock<std::mutex>;

constexpr int kDevices = 16, kGids = 3, kGidTable = 16;
constexpr uint32_t kMaxMessage = 1u << 30, kSequences = 0xffffff;

/// Ends the process: the caller did what a real device answers by wrong bytes or a crash, if at all.
[[noreturn]] __attribute__((format(printf, 1, 2))) void misuse(const char *format, ...);

enum class Life : uint32_t { kAlive = 0x11fe11fe, kDestroyed = 0xdeaddead, kForked = 0xf0f0f0f0 };

/// The end of every object: whether it may be used.
struct Stamp {
    Life life = Life::kAlive;
};

/// Events that wait to be read, and a descriptor that is readable while there are some.
template <class T>
class Events {
public:
    explicit Events(int descriptor) : fd(descriptor) {}
    void push(const T &event);
    /// Takes the next one, and waits for it where the descriptor is a blocking one. It answers 0 or an errno.
    int next(Lock &lock, T *event);
    template <class Is>
    void drop(Is is);

    const int fd;

private:
    void settle();
    std::deque<T> waiting_;
};

struct Device : ibv_device {
    int index = 0;
    bool up = true, gone = false, held = false;
    bool gids[kGids] = {true, true, true};
    uint64_t bytes = 0;
};

struct Pair;
struct Queue;

struct Context : ibv_context, Stamp {
    static constexpr const char *kWhat = "context";
    Context(Device *of, int async_descriptor, int wake_descriptor)
        : ibv_context{}, device(of), events(async_descriptor), wake(wake_descriptor) {}
    Device *const device;
    Events<ibv_async_event> events;
    const int wake;
    std::thread worker;
    bool stop = false, dead = false;
    int domains = 0, channels = 0;
    std::map<uint32_t, Pair *> pairs;
    std::vector<Queue *> queues;
    std::minstd_rand random;
};

struct Domain : ibv_pd, Stamp {
    static constexpr const char *kWhat = "protection domain";
    int users = 0;
};

struct Region : ibv_mr, Stamp {
    static constexpr const char *kWhat = "memory region";
    uint64_t iova = 0;
    int access = 0;
    void *window = nullptr;  // where a dma-buf is mapped
    size_t window_bytes = 0;
};

struct Channel : ibv_comp_channel, Stamp {
    static constexpr const char *kWhat = "completion channel";
    explicit Channel(int descriptor) : ibv_comp_channel{}, events(descriptor) {}
    Events<Queue *> events;
};

/// A completion and, for a send, how many of the pair's sends have left the queue once it is polled.
struct Entry {
    ibv_wc completion;
    Pair *pair;
    bool send;
    uint64_t posted;
};

struct Queue : ibv_cq, Stamp {
    static constexpr const char *kWhat = "completion queue";
    std::deque<Entry> entries;
    bool armed = false, solicited = false, overrun = false;
    int users = 0;
    uint32_t unacknowledged = 0;
};

struct Send {
    ibv_send_wr request;
    std::vector<ibv_sge> sges;
    std::string inlined;
    uint32_t length;
    uint64_t index;
    int failed;  // the status that it completes with when its turn comes
};

struct Recv {
    uint64_t id;
    std::vector<ibv_sge> sges;
    uint64_t index;
};

/// The read that is being answered.
struct Answer {
    bool active = false;
    Packet request;
    uint32_t done = 0;
};

/// A way in from a requester.
struct Inbound {
    Link link;
    bool closing = false;
    uint32_t mtu = 0, reads = 0;
};

struct Pair : ibv_qp, Stamp {
    static constexpr const char *kWhat = "queue pair";
    Pair() : ibv_qp{} {}
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    int listener = -1, slot = -1;  // and where it was polled
    bool knocked = false;
    uint32_t unacknowledged = 0;
    // As requester: sends[0] has the sequence number first, and sent of them have gone out, with offset bytes of the next.
    std::deque<Send> sends;
    uint64_t sends_posted = 0, sends_freed = 0;
    uint32_t first = 0, rnr_left = 0;
    size_t sent = 0;
    uint32_t offset = 0;
    Link out;
    bool welcome = false, peer_down = false;
    Time deadline{}, again{};  // when it gives up an unreachable peer, and when it tries the next time
    // As responder.
    std::deque<Recv> recvs;
    uint64_t recvs_posted = 0, recvs_freed = 0;
    uint32_t expected = 0;
    std::vector<std::unique_ptr<Inbound>> inbound;
    Inbound *active = nullptr;
    Answer answer;
    bool receiving = false;  // the message that is expected has begun
};

/// World is everything, and never destroyed: threads use it until the process ends.
struct World {
    std::mutex lock;
    Device devices[kDevices];
    std::vector<Context *> contexts;
    std::unordered_map<uint32_t, Region *> local, remote;
    uint32_t keys = std::random_device()() & kSequences;
    int fail_op = -1, fail_status = 0;
    std::map<std::string, uint64_t> asked;  // see note
    std::deque<std::shared_ptr<void>> graveyard;
};
World &world();

inline const char *end_of(Life life) {
    return life == Life::kDestroyed ? "was destroyed before" : life == Life::kForked ? "the process has that forked this one" : "is none";
}

/// Checks an object that a call was given.
template <class T, class Base>
T *alive(Base *base, const char *call) {
    auto *object = static_cast<T *>(base);
    if (object == nullptr) misuse("%s of a %s that is NULL", call, T::kWhat);
    if (object->life != Life::kAlive) misuse("%s of a %s that %s", call, T::kWhat, end_of(object->life));
    return object;
}

/// Keeps what is left of a destroyed object, for alive.
template <class T>
void bury(T *object) {
    object->life = Life::kDestroyed;
    auto &graves = world().graveyard;
    graves.emplace_back(object, [](T *p) { delete p; });
    if (graves.size() > 1u << 15) graves.pop_front();
}

/// What a call that makes something answers when it cannot.
template <class T>
T *no(int code) {
    errno = code;
    return nullptr;
}

inline Context *of(ibv_context *context) { return static_cast<Context *>(context); }
inline Queue *of(ibv_cq *queue) { return static_cast<Queue *>(queue); }

// steer.cpp
int told(const char *call, const char *otherwise = "");
uint64_t setting(const char *name, uint64_t otherwise);
int limit(const char *name, int otherwise);
uint64_t big_limit(const char *name, uint64_t otherwise);
/// The errno of a call that cannot be: told by the environment, or of a removed device.
int refused(const char *call, const Context *context, const char *otherwise = "");
int devices();

/// Keeps the largest number of a name that the program has asked for, for fake_verbs_most.
void note(const char *name, uint64_t value);

// device.cpp
ibv_gid gid_of(int device, int index);
/// The device that has a GID, -1 if none has.
int device_of(const ibv_gid &gid);
void raise(Context *context, ibv_event_type type, ibv_async_event event = {});
void rouse(Context *context);

// memory.cpp
/// The region of a key, if it has the range and the rights.
Region *find(bool remote, const ibv_pd *domain, uint32_t key, uint64_t addr, uint64_t length, int access);
/// Moves bytes between memory of the process and a buffer; false where the memory is not mapped any more.
bool load(const Region *region, uint64_t addr, void *to, size_t n);
bool store(const Region *region, uint64_t addr, const void *from, size_t n);
/// 8 bytes that were there before they were added to or, if equal, exchanged.
bool atomically(const Region *region, const Packet &request, uint64_t *before);
bool gather(const ibv_pd *domain, const std::vector<ibv_sge> &sges, uint32_t offset, uint8_t *to, size_t n);
bool scatter(const ibv_pd *domain, const std::vector<ibv_sge> &sges, uint32_t offset, const uint8_t *from, size_t n);
bool usable(const ibv_pd *domain, const std::vector<ibv_sge> &sges, int access);
uint64_t total(const std::vector<ibv_sge> &sges);

// queue.cpp
void complete(Pair *pair, bool send, uint64_t posted, const ibv_wc &completion, bool solicited);
void forget(Pair *pair);
/// Takes away the events of a pair that is destroyed, and waits for the acknowledgement of those that were read.
void settle_events(Lock &held, Pair *pair);

// pair.cpp
uint32_t bytes_of(ibv_mtu mtu);
int listen_as(int device, uint32_t number);
int connect_to(int device, uint32_t number);
/// Has a pair fail: its ways close, and the worker flushes what is posted.
void fail(Pair *pair);
void drop_ways(Pair *pair);

// requester.cpp
ibv_wc completion(const Pair *pair, uint64_t id, ibv_wc_status status);
void request(Pair *pair, Time now);
/// When a pair has something to try again, or to give up.
Time due(const Pair *pair);

// responder.cpp
void respond(Pair *pair);
/// Whether a requester is not heard for now.
bool stalled(const Pair *pair, const Inbound *in);
void announce(Pair *pair, bool up);

// worker.cpp
void work(Context *context);

}  // namespace mori::fake

#include "events.hpp"
