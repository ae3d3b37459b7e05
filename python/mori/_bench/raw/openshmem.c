/* SPDX-License-Identifier: MIT */

/* Measures an OpenSHMEM library between 2 PEs of one host. Each line of standard input, "what bytes rounds
   runs", requests a measurement of put, put_quiet, get, fetch_add or barrier. The answer is a line "what
   nanoseconds": of one round in the fastest run. The first line of the output names the library.
   oshcc -O2 openshmem.c && echo put_quiet 8 5000 50 | oshrun -np 2 ./a.out */

#define _GNU_SOURCE
#include <sched.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static long *requests;         /* symmetric: counts the measurements of barriers, which PE 1 joins; -1: end */
static long *rounds, *runs; /* symmetric: of the measurement */
static char *dest, *own;    /* dest is symmetric */

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define FASTEST(body)                                    \
	for (long r = 0; r < *runs; r++) {                   \
		double begin = now();                            \
		for (long i = 0; i < *rounds; i++) {             \
			body;                                        \
		}                                                \
		double took = (now() - begin) / (double)*rounds; \
		best = took < best ? took : best;                \
	}

static double barriers(void) {
	double best = 1e18;
	shmem_barrier_all();
	FASTEST(shmem_barrier_all());
	return best;
}

/* measure runs on PE 0. The other PE sleeps, except in barriers. */
static double measure(const char *what, size_t n) {
	double best = 1e18;
	if (strcmp(what, "put") == 0 || strcmp(what, "put_quiet") == 0) {
		FASTEST({ shmem_putmem(dest, own, n, 1); shmem_quiet(); });
	} else if (strcmp(what, "get") == 0) {
		FASTEST(shmem_getmem(own, dest, n, 1));
	} else if (strcmp(what, "fetch_add") == 0) {
		FASTEST((void)shmem_long_atomic_fetch_add((long *)dest, 1, 1));
	} else if (strcmp(what, "barrier") == 0) {
		shmem_long_p(rounds, *rounds, 1);
		shmem_long_p(runs, *runs, 1);
		shmem_fence();
		shmem_long_p(requests, ++*requests, 1);
		return barriers();
	}
	return best;
}

static void serve(void) {
	char line[128], what[32];
	unsigned long n;
	while (fgets(line, sizeof line, stdin) != NULL) {
		if (sscanf(line, "%31s %lu %ld %ld", what, &n, rounds, runs) != 4 || n > MIB || *rounds < 1 || *runs < 1) {
			fprintf(stderr, "openshmem.c: cannot parse: %s", line);
			break;
		}
		printf("%s %.2f\n", what, measure(what, n));
		fflush(stdout);
	}
	shmem_long_p(requests, -1, 1);
	shmem_quiet();
}

static void follow(void) {
	for (long seen = 0; *(volatile long *)requests != -1;) {
		if (shmem_long_test(requests, SHMEM_CMP_NE, seen) && *(volatile long *)requests != -1) {
			seen++;
			barriers();
		} else {
			usleep(200);
		}
	}
}

/* pin puts each PE on a core of its own: a busy machine may place two that spin on one core. */
static void pin(int pe) {
	cpu_set_t all, one;
	if (sched_getaffinity(0, sizeof all, &all) != 0)
		return;
	CPU_ZERO(&one);
	for (int cpu = 0, left = pe % CPU_COUNT(&all); cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &all) && left-- == 0)
			CPU_SET(cpu, &one);
	}
	sched_setaffinity(0, sizeof one, &one);
}

int main(void) {
	char name[SHMEM_MAX_NAME_LEN];
	shmem_init();
	pin(shmem_my_pe());
	dest = shmem_malloc(MIB);
	requests = shmem_calloc(3, 64);
	own = aligned_alloc(4096, MIB); /* aligned like the memory that mori is measured with */
	if (dest == NULL || requests == NULL || own == NULL || shmem_n_pes() != 2)
		return 1;
	rounds = requests + 8;
	runs = requests + 16;
	memset(dest, 0, MIB);
	memset(own, 2, MIB);
	shmem_barrier_all();
	if (shmem_my_pe() == 0) {
		shmem_info_get_name(name);
		printf("%s\n", name);
		fflush(stdout);
		serve();
	} else {
		follow();
	}
	shmem_barrier_all();
	shmem_global_exit(0); /* Open MPI 4.1 crashes in shmem_finalize on some hosts */
}
