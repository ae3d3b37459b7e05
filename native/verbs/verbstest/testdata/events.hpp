// SPDX-License-Identifier: MIT
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace mori::fake {

template <class T>
void Events<T>::push(const T &event) {
    waiting_.push_back(event);
    const uint64_t one = 1;  // each one anew, for those that wait for edges
    if (write(fd, &one, sizeof one) < 0) misuse("tell of an event: errno %d", errno);
}

template <class T>
int Events<T>::next(Lock &lock, T *event) {
    while (waiting_.empty()) {
        if ((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0) return EAGAIN;
        pollfd p{fd, POLLIN, 0};
        lock.unlock();
        const int n = poll(&p, 1, -1), code = errno;
        lock.lock();
        if (n < 0) return code;
    }
    *event = waiting_.front();
    waiting_.pop_front();
    settle();
    return 0;
}

template <class T>
template <class Is>
void Events<T>::drop(Is is) {
    if (waiting_.empty()) return;
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), is), waiting_.end());
    settle();
}

// The descriptor counts what was pushed since nothing waited: it has something to read whenever something has been waiting.
template <class T>
void Events<T>::settle() {
    uint64_t n;
    if (waiting_.empty() && read(fd, &n, sizeof n) < 0) misuse("all events are read: errno %d", errno);
}

}  // namespace mori::fake
