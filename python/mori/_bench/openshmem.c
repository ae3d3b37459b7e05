/* SPDX-License-Identifier: MIT */

/* Measures an OpenSHMEM library: 2 PEs of one host. Prints one line per measurement, "name nanoseconds", the best of some rounds.
   oshcc -O2 oshmem.c && oshrun -np 2 ./a.out */

#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MIB = 1 << 20, ROUNDS = 50 };

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static char *sym, *own;
static uint64_t *word;

static void put8(void) {
	shmem_putmem(word, own, 8, 1);
	shmem_quiet();
}
static void put1m(void) {
	shmem_putmem(sym, own, MIB, 1);
	shmem_quiet();
}
static void get1m(void) { shmem_getmem(own, sym, MIB, 1); }
static void add(void) { (void)shmem_long_atomic_fetch_add((long *)word, 3, 1); }

/* Loads and stores of the peer's memory, as the library maps it. */
static char *peer;
static void copy1m(void) { memcpy(peer, own, MIB); }

/* measure prints what PE 0 does, while PE 1 waits in the barrier. */
static void measure(const char *name, void (*f)(void), int n) {
	double best = 1e18;
	for (int r = 0; r < ROUNDS && shmem_my_pe() == 0; r++) {
		double begin = now();
		for (int i = 0; i < n; i++)
			f();
		double took = (now() - begin) / n;
		if (took < best)
			best = took;
	}
	if (shmem_my_pe() == 0)
		printf("%s %.1f\n", name, best);
	shmem_barrier_all();
}

static void barriers(int n) {
	double best = 1e18;
	for (int r = 0; r < ROUNDS; r++) {
		shmem_barrier_all();
		double begin = now();
		for (int i = 0; i < n; i++)
			shmem_barrier_all();
		double took = (now() - begin) / n;
		if (took < best)
			best = took;
	}
	if (shmem_my_pe() == 0)
		printf("barrier %.1f\n", best);
}

int main(void) {
	shmem_init();
	sym = shmem_malloc(MIB);
	word = shmem_malloc(64);
	own = malloc(MIB);
	if (sym == NULL || word == NULL || own == NULL || shmem_n_pes() != 2)
		return 1;
	memset(sym, 1, MIB);
	memset(word, 0, 64);
	memset(own, 2, MIB);
	shmem_barrier_all();
	measure("put8", put8, 5000);
	measure("put1m", put1m, 20);
	measure("get1m", get1m, 20);
	measure("add", add, 5000);
	peer = shmem_ptr(sym, 1);
	if (peer != NULL)
		measure("copy1m", copy1m, 20);
	barriers(2000);
	fflush(stdout);
	shmem_barrier_all();
	shmem_global_exit(0); /* Open MPI 4.1 crashes in shmem_finalize on some hosts */
}
