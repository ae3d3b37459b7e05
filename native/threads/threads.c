// SPDX-License-Identifier: MIT

#include "threads.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

static void *wait_at(void *gate) {
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

enum { kStack = 256 << 10 };

int mori_threads_probe(int wanted, int *cause) {
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_attr_t attr;
    sigset_t all, before;
    int started = 0;
    *cause = 0;
    if (wanted <= 0) {
        return 0;
    }
    // Stacks of our own: the C library would keep those that it maps.
    size_t room = (size_t)wanted * kStack;
    char *stacks = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pthread_t *threads = calloc(wanted, sizeof *threads);
    if (stacks == MAP_FAILED || threads == NULL) {
        *cause = ENOMEM;
    }
    pthread_attr_init(&attr);
    sigfillset(&all); // the threads are no place for the handlers of the process
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_mutex_lock(&gate);
    while (*cause == 0 && started < wanted) {
        pthread_attr_setstack(&attr, stacks + (size_t)started * kStack, kStack);
        *cause = pthread_create(&threads[started], &attr, wait_at, &gate);
        started += *cause == 0;
    }
    pthread_mutex_unlock(&gate);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_attr_destroy(&attr);
    free(threads);
    if (stacks != MAP_FAILED) {
        munmap(stacks, room);
    }
    return started;
}
