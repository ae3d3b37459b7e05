// SPDX-License-Identifier: MIT
// The thread of a context: it does all that its device does. It waits for the sockets of its queue pairs, for calls that give it work, and for
// what is to be tried again.
#include <unistd.h>

#include "world.hpp"

namespace mori::fake {

namespace {

using Fds = std::vector<pollfd>;

// watch adds a link to what is waited for, if it waits for anything.
void watch(Fds *fds, Link *link, bool hears) {
    const short events = short((hears ? POLLIN : 0) | (link->done() ? 0 : POLLOUT));
    link->slot = -1;
    if (!link->is_open() || events == 0) return;
    link->slot = int(fds->size());
    fds->push_back({link->fd(), events, 0});
}

void watch(Fds *fds, Pair *pair, bool up) {
    pair->slot = int(fds->size());
    fds->push_back({pair->listener, POLLIN, 0});
    watch(fds, &pair->out, up);
    for (auto &in : pair->inbound) watch(fds, &in->link, up && !in->closing && !stalled(pair, in.get()));
}

bool happened(const Fds &fds, int slot) { return slot >= 0 && size_t(slot) < fds.size() && fds[size_t(slot)].revents != 0; }

void mark(const Fds &fds, Pair *pair) {
    if (happened(fds, pair->slot)) pair->knocked = true;
    if (happened(fds, pair->out.slot)) pair->out.ready = true;
    for (auto &in : pair->inbound)
        if (happened(fds, in->link.slot)) in->link.ready = true;
}

// delayed sleeps at random where that is asked for.
void delayed(Context *c) {
    if (setting("FAKE_VERBS_SEED", 0) != 0 && c->random() % 2 == 0) usleep(useconds_t(c->random() % 300));
}

int wait_ms(const Context *c) {
    Time at = Time::max();
    for (const auto &[number, pair] : c->pairs) at = std::min(at, due(pair));
    if (at == Time::max()) return -1;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(at - Clock::now()).count();
    return left < 0 ? 0 : int(left) + 1;
}

void wait(Context *c, Lock *held, Fds *fds) {
    const bool moves = !c->device->held && !c->dead;
    fds->assign(1, {c->wake, POLLIN, 0});
    for (auto &[number, pair] : c->pairs)
        if (moves) watch(fds, pair, c->device->up);
    const int ms = moves ? wait_ms(c) : -1;
    held->unlock();
    if (poll(fds->data(), fds->size(), ms) < 0) (*fds)[0].revents = 0;
    delayed(c);
    held->lock();
}

// lose has the pairs of a queue fail that had no room for a completion.
void lose(Context *c, Pair *pair) {
    if (pair->state == IBV_QPS_ERR || pair->state == IBV_QPS_RESET || (!of(pair->send_cq)->overrun && !of(pair->recv_cq)->overrun)) return;
    ibv_async_event event{};
    event.element.qp = pair;
    raise(c, IBV_EVENT_QP_FATAL, event);
    fail(pair);
}

}  // namespace

void work(Context *c) {
    Lock held(world().lock);
    for (Fds fds; !c->stop;) {
        wait(c, &held, &fds);
        uint64_t n;
        if (fds[0].revents != 0 && read(c->wake, &n, sizeof n) < 0) misuse("the worker of %s is woken: errno %d", c->device->name, errno);
        if (c->device->held || c->dead) continue;
        for (auto &[number, pair] : c->pairs) {
            if (fds.size() > 1) mark(fds, pair);
            respond(pair);
            request(pair, Clock::now());
            lose(c, pair);
        }
    }
}

}  // namespace mori::fake
