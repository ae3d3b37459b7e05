// SPDX-License-Identifier: MIT
// Completion queues, completion channels and asynchronous events.
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>

#include "world.hpp"

namespace mori::fake {

namespace {

// acknowledged is told when the events of an object are: who destroys it waits for that.
std::condition_variable_any acknowledged;

// notify tells a channel of a completion, once for each time that the queue was armed.
void notify(Queue *queue, const ibv_wc &completion, bool solicited) {
    if (!queue->armed || (queue->solicited && !solicited && completion.status == IBV_WC_SUCCESS)) return;
    queue->armed = false;
    if (queue->channel != nullptr) static_cast<Channel *>(queue->channel)->events.push(queue);
}

// settled waits until all events of an object have been acknowledged, as its destruction does.
void settled(Lock &held, const uint32_t &unacknowledged, const char *call) {
    if (!acknowledged.wait_for(held, std::chrono::seconds(20), [&] { return unacknowledged == 0; }))
        misuse("%s waits for ever: %u events were not acknowledged", call, unacknowledged);
}

bool of_pair(const ibv_async_event &e) { return e.event_type >= IBV_EVENT_QP_FATAL && e.event_type <= IBV_EVENT_COMM_EST; }

// counted is the count of events of what an event is of, or null where it is of a device.
uint32_t *counted(const ibv_async_event &e) {
    if (of_pair(e)) return &alive<Pair>(e.element.qp, "an asynchronous event")->unacknowledged;
    return e.event_type == IBV_EVENT_CQ_ERR ? &alive<Queue>(e.element.cq, "an asynchronous event")->unacknowledged : nullptr;
}

}  // namespace

void settle_events(Lock &held, Pair *pair) {
    of(pair->context)->events.drop([pair](const ibv_async_event &e) { return of_pair(e) && e.element.qp == pair; });
    settled(held, pair->unacknowledged, "ibv_destroy_qp");
}

// What does not fit is lost, and so is the queue from then on: an event says that, and the worker has its pairs fail.
void complete(Pair *pair, bool send, uint64_t posted, const ibv_wc &completion, bool solicited) {
    Queue *queue = of(send ? pair->send_cq : pair->recv_cq);
    if (queue->overrun) return;
    if (int(queue->entries.size()) >= queue->cqe) {
        queue->overrun = true;
        ibv_async_event event{};
        event.element.cq = queue;
        raise(of(queue->context), IBV_EVENT_CQ_ERR, event);
        return;
    }
    queue->entries.push_back({completion, pair, send, posted});
    notify(queue, completion, solicited);
}

void forget(Pair *pair) {
    for (Queue *queue : {of(pair->send_cq), of(pair->recv_cq)}) {
        auto &all = queue->entries;
        all.erase(std::remove_if(all.begin(), all.end(), [pair](const Entry &e) { return e.pair == pair; }), all.end());
    }
}

int poll_queue(ibv_cq *given, int most, ibv_wc *out) {
    const Lock held(world().lock);
    Queue *queue = alive<Queue>(given, "ibv_poll_cq");
    if (const int code = refused("ibv_poll_cq", of(queue->context)); code != 0) return -code;
    int n = 0;
    for (; n < most && !queue->entries.empty(); n++) {
        const Entry &e = queue->entries.front();
        out[n] = e.completion;
        uint64_t &freed = e.send ? e.pair->sends_freed : e.pair->recvs_freed;
        freed = std::max(freed, e.posted);
        queue->entries.pop_front();
    }
    return n;
}

int arm_queue(ibv_cq *given, int solicited) {
    const Lock held(world().lock);
    Queue *queue = alive<Queue>(given, "ibv_req_notify_cq");
    if (const int code = refused("ibv_req_notify_cq", of(queue->context)); code != 0) return code;
    queue->solicited = solicited != 0 && (!queue->armed || queue->solicited);
    queue->armed = true;
    return 0;
}

}  // namespace mori::fake

using namespace mori::fake;

extern "C" {

ibv_comp_channel *ibv_create_comp_channel(ibv_context *given) {
    const Lock held(world().lock);
    Context *c = alive<Context>(given, "ibv_create_comp_channel");
    if (const int code = refused("ibv_create_comp_channel", c); code != 0) return no<ibv_comp_channel>(code);
    auto *channel = new Channel(eventfd(0, EFD_CLOEXEC));
    channel->context = c;
    channel->fd = channel->events.fd;
    c->channels++;
    return channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel *given) {
    const Lock held(world().lock);
    auto *channel = alive<Channel>(given, "ibv_destroy_comp_channel");
    if (channel->refcnt > 0) return EBUSY;
    of(channel->context)->channels--;
    close(channel->fd);
    bury(channel);
    return 0;
}

ibv_cq *ibv_create_cq(ibv_context *given, int entries, void *context, ibv_comp_channel *channel, int vector) {
    const Lock held(world().lock);
    Context *c = alive<Context>(given, "ibv_create_cq");
    int code = refused("ibv_create_cq", c);
    if (code == 0 && (entries < 1 || entries > limit("max_cqe", 32767) || vector != 0)) code = EINVAL;
    if (code == 0 && int(c->queues.size()) >= limit("max_cq", 4096)) code = ENOMEM;
    if (code != 0) return no<ibv_cq>(code);
    note("cqe", uint64_t(entries));
    auto *queue = new Queue();
    queue->context = c;
    queue->cq_context = context;
    queue->cqe = entries;
    if (channel != nullptr) {
        queue->channel = alive<Channel>(channel, "ibv_create_cq");
        channel->refcnt++;
    }
    c->queues.push_back(queue);
    return queue;
}

int ibv_resize_cq(ibv_cq *, int) { return ENOSYS; }

int ibv_destroy_cq(ibv_cq *given) {
    Lock held(world().lock);
    Queue *queue = alive<Queue>(given, "ibv_destroy_cq");
    if (queue->users > 0) return EBUSY;
    Context *c = of(queue->context);
    c->events.drop([&](const ibv_async_event &e) { return e.event_type == IBV_EVENT_CQ_ERR && e.element.cq == queue; });
    if (queue->channel != nullptr) {
        static_cast<Channel *>(queue->channel)->events.drop([&](Queue *q) { return q == queue; });
    }
    settled(held, queue->unacknowledged, "ibv_destroy_cq");
    if (queue->channel != nullptr) queue->channel->refcnt--;
    c->queues.erase(std::find(c->queues.begin(), c->queues.end(), queue));
    bury(queue);
    return 0;
}

int ibv_get_cq_event(ibv_comp_channel *given, ibv_cq **queue, void **context) {
    Lock held(world().lock);
    Queue *of_event = nullptr;
    if (const int code = alive<Channel>(given, "ibv_get_cq_event")->events.next(held, &of_event); code != 0) {
        errno = code;
        return -1;
    }
    of_event->unacknowledged++;
    *queue = of_event;
    *context = of_event->cq_context;
    return 0;
}

void ibv_ack_cq_events(ibv_cq *given, unsigned n) {
    const Lock held(world().lock);
    Queue *queue = alive<Queue>(given, "ibv_ack_cq_events");
    if (n > queue->unacknowledged) misuse("ibv_ack_cq_events of %u events, and %u were got", n, queue->unacknowledged);
    queue->unacknowledged -= n;
    acknowledged.notify_all();
}

int ibv_get_async_event(ibv_context *given, ibv_async_event *event) {
    Lock held(world().lock);
    Context *c = alive<Context>(given, "ibv_get_async_event");
    if (const int code = c->events.next(held, event); code != 0) {
        errno = code;
        return -1;
    }
    if (uint32_t *n = counted(*event); n != nullptr) ++*n;
    return 0;
}

void ibv_ack_async_event(ibv_async_event *event) {
    const Lock held(world().lock);
    if (uint32_t *n = counted(*event); n != nullptr && (*n)-- == 0) misuse("an asynchronous event was acknowledged twice");
    acknowledged.notify_all();
}
}
