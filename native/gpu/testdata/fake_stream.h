// SPDX-License-Identifier: MIT
//
// Streams: a thread each, which does what is queued in its order and sleeps when there is nothing. Copies touch memory only when
// their turn comes, so that a wait which is missing shows. The default stream of a device is a stream as any other: it waits
// for none, and none for it. Part of fake.c.

// A point is a place in a stream's queue, which events and waits share.
struct point {
	int refs, done;
	struct timespec when;
};

enum work { COPY, SET, LAUNCH, RECORD, WAIT };

struct task {
	struct task *next;
	enum work work;
	uint64_t dst, src, n;
	uint8_t value;
	void *copied; // pageable memory, as it was when the copy was queued
	struct point *point;
	struct code *module;
	struct fake_launch launch;
	uint32_t delay; // microseconds
	int fail, began;
	char args[]; // of LAUNCH, n bytes
};

struct stream {
	struct stream *next;
	int dev, ending;
	pthread_cond_t wake;
	struct task *head, **tail;
};

static struct stream *streams;
static struct stream *defaults[DEVICES];
static int held; // nothing begins
static uint64_t dice;

static void let_go(struct point *p) {
	if (p && --p->refs == 0)
		free(p);
}

static void perform(struct task *t) {
	switch (t->work) {
	case COPY:
		memmove((void *)(uintptr_t)t->dst, t->copied ? t->copied : (void *)(uintptr_t)t->src, t->n);
		break;
	case SET:
		memset((void *)(uintptr_t)t->dst, t->value, t->n);
		break;
	case LAUNCH:
		if (!t->launch.kernel) { // fill(uint64_t addr, uint32_t n, uint32_t value)
			uint64_t addr;
			uint32_t n, value;
			memcpy(&addr, t->args, 8), memcpy(&n, t->args + 8, 4), memcpy(&value, t->args + 12, 4);
			for (uint32_t i = 0; i < n; i++)
				((volatile uint32_t *)(uintptr_t)addr)[i] = value;
		} else if (fake_kernel_run(&t->launch)) {
			t->fail = FAILED;
		}
		break;
	case RECORD: case WAIT:
		break;
	}
}

// turn does one task. The lock is held, and released while bytes move.
static void turn(struct stream *s, struct task *t) {
	while (held || (t->work == WAIT && !t->point->done && !broken[s->dev]))
		pthread_cond_wait(&changed, &lock);
	if (broken[s->dev])
		return; // nothing works there any more, and events do not happen
	if (t->fail) {
		broken[s->dev] = t->fail;
		return;
	}
	if (t->delay) {
		pthread_mutex_unlock(&lock);
		nanosleep(&(struct timespec){.tv_nsec = 1000l * t->delay}, NULL);
		pthread_mutex_lock(&lock);
	}
	t->began = 1;
	pthread_mutex_unlock(&lock);
	perform(t);
	pthread_mutex_lock(&lock);
	if (t->fail)
		broken[s->dev] = t->fail;
	if (t->work == RECORD) {
		clock_gettime(CLOCK_MONOTONIC, &t->point->when);
		t->point->done = 1;
	}
}

static void *serve(void *arg) {
	struct stream *s = arg;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!s->head && !s->ending)
			pthread_cond_wait(&s->wake, &lock);
		struct task *t = s->head;
		if (!t)
			break;
		turn(s, t);
		s->head = t->next;
		if (!s->head)
			s->tail = &s->head;
		let_go(t->point);
		free(t->copied);
		free(t);
		pthread_cond_broadcast(&changed);
	}
	for (struct stream **p = &streams; *p; p = &(*p)->next)
		if (*p == s) {
			*p = s->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&s->wake);
	free(s);
	return NULL;
}

static struct stream *new_stream(int dev) {
	struct stream *s = calloc(1, sizeof(*s));
	pthread_t thread;
	pthread_attr_t attr;
	sigset_t all, before;
	s->dev = dev;
	s->tail = &s->head;
	s->next = streams;
	streams = s;
	pthread_cond_init(&s->wake, NULL);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all); // signals are the program's
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, &attr, serve, s))
		misuse("no thread for a stream: %s", strerror(errno));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return s;
}

// stream_of finds the queue that work of a device may go to, NULL if the stream is another's or none.
static struct stream *stream_of(uint64_t stream, int dev) {
	if (!stream)
		return defaults[dev] ? defaults[dev] : (defaults[dev] = new_stream(dev));
	struct thing *t = named(STREAM, stream);
	return t && t->dev == dev ? t->object : NULL;
}

// delay is how long a task waits before it begins: often not at all, at times for as long as many tasks take.
static uint32_t delay(void) {
	uint64_t seed = setting("FAKE_GPU_SEED", 0);
	if (!seed)
		return 0;
	if (!dice)
		dice = seed * 0x9e3779b97f4a7c15;
	dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
	uint32_t die = (uint32_t)(dice >> 32);
	return die % 8 == 0 ? die / 8 % 5000 : die % 2 ? die / 8 % 300 : 0;
}

static struct task *new_task(enum work work, size_t args) {
	struct task *t = calloc(1, sizeof(*t) + args);
	t->work = work;
	t->delay = work == RECORD || work == WAIT ? 0 : delay();
	t->fail = told_of("work");
	return t;
}

static void push(struct stream *s, struct task *t) {
	*s->tail = t;
	s->tail = &t->next;
	pthread_cond_signal(&s->wake);
}

// push_point queues a place that is passed when all before it is done.
static struct point *push_point(struct stream *s) {
	struct task *t = new_task(RECORD, 0);
	t->point = calloc(1, sizeof(*t->point));
	t->point->refs = 2;
	push(s, t);
	return t->point;
}

// drain waits until s has done all that it has now. The lock is released meanwhile.
static int drain(struct stream *s) {
	int dev = s->dev;
	struct point *p = push_point(s);
	while (!p->done && !broken[dev])
		pthread_cond_wait(&changed, &lock);
	let_go(p);
	return broken[dev];
}

static int overlap(uint64_t a, uint64_t n, uint64_t b, uint64_t m) { return n && m && a < b + m && b < a + n; }

// names tells whether a task still needs memory: for a launch, whether a word of its arguments points there, or the list that they name does.
static int names(const struct task *t, uint64_t base, uint64_t size) {
	if (t->work == COPY)
		return overlap(t->dst, t->n, base, size) || (!t->copied && overlap(t->src, t->n, base, size));
	if (t->work == SET)
		return overlap(t->dst, t->n, base, size);
	if (t->work != LAUNCH)
		return 0;
	uint64_t word, count;
	for (size_t i = 0; i + 8 <= t->n; i += 8) {
		memcpy(&word, t->args + i, 8);
		if (word - base < size)
			return 1;
	}
	if (!t->launch.kernel || strcmp(t->launch.kernel->name, "mori_io_copy_blocks"))
		return 0;
	memcpy(&word, t->args, 8), memcpy(&count, t->args + 8, 8); // of struct CopyBlocksArgs
	uint64_t block[3]; // its bytes, and what destinations and sources count from
	memcpy(block, t->args + 10 * 8, sizeof block);
	const uint64_t *offsets = (const void *)(uintptr_t)word;
	for (uint64_t i = 0; block[0] && i < count; i++)
		if (overlap(block[1] + offsets[i], block[0], base, size) || overlap(block[2] + offsets[count + i], block[0], base, size))
			return 1;
	if (block[0])
		return 0;
	const uint64_t(*segments)[4] = word ? (const void *)(uintptr_t)word : (const void *)(t->args + 6 * 8); // or the one that goes along
	for (uint64_t i = 0; i < count; i++)
		if (overlap(segments[i][0], segments[i][2], base, size) || overlap(segments[i][1], segments[i][2], base, size))
			return 1;
	return 0;
}

// needing finds work that has not ended and names the memory.
static struct task *needing(uint64_t base, uint64_t size, struct stream **on) {
	for (struct stream *s = streams; s; s = s->next)
		for (struct task *t = broken[s->dev] ? NULL : s->head; t; t = t->next)
			if (names(t, base, size)) {
				*on = s;
				return t;
			}
	return NULL;
}

// unused ends the process if memory is about to be taken away that work needs which has not ended. A kernel that runs is waited
// for, as drivers do: what it wrote last may have told its host that it is done with the memory. The lock is released meanwhile.
static void unused(const char *call, uint64_t base, uint64_t size) {
	static const char *const words[] = {"copy", "memset", "kernel"};
	struct stream *s;
	for (struct task *t; (t = needing(base, size, &s));) {
		if (t->work != LAUNCH || !t->began)
			misuse("%s takes away %llu bytes at %#llx while a %s on device %d that was not waited for needs them", call, (unsigned long long)size,
				(unsigned long long)base, words[t->work], s->dev);
		pthread_cond_wait(&changed, &lock);
	}
}

// leaving finds what is about to be taken away, when nothing needs it any more.
static struct thing *leaving(const char *call, enum kind kind, uint64_t base) {
	struct thing *t = at(kind, base);
	if (t)
		unused(call, base, t->size);
	return at(kind, base);
}

// fake_gpu_hold keeps all work that has not begun from beginning, until it is called with 0 as often.
__attribute__((visibility("default"))) void fake_gpu_hold(int on) {
	pthread_mutex_lock(&lock);
	held += on ? 1 : -1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}
