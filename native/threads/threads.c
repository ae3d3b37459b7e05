// SPDX-License-Identifier: MIT

#include "threads.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

static void *wait_at(void *gate) {
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

int mori_threads_probe(int wanted, int *cause) {
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_attr_t small;
    sigset_t all, before;
    int started = 0;
    pthread_t *threads = calloc(wanted > 0 ? wanted : 1, sizeof *threads);
    if (threads == NULL) {
        *cause = ENOMEM;
        return 0;
    }
    *cause = 0;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10 > PTHREAD_STACK_MIN ? 64 << 10 : PTHREAD_STACK_MIN);
    sigfillset(&all); // the threads are no place for the handlers of the process
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_mutex_lock(&gate);
    while (started < wanted && (*cause = pthread_create(&threads[started], &small, wait_at, &gate)) == 0) {
        started++;
    }
    pthread_mutex_unlock(&gate);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_attr_destroy(&small);
    free(threads);
    return started;
}
