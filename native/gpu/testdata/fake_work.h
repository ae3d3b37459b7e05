// SPDX-License-Identifier: MIT
//
// Copies, streams and events, as the driver is asked for them. Part of fake.c.

// inside tells whether a range is all in one allocation, or in mappings that touch; or in none at all, so that it is pageable host memory.
static int inside(uint64_t addr, size_t n, int *pageable) {
	uint64_t end = addr + n;
	struct thing *t = around(addr);
	*pageable = !t;
	if (!t)
		return 1;
	for (enum kind kind = t->kind; t && t->kind == kind; t = around(addr)) {
		addr = t->base + t->size;
		if (addr >= end)
			return 1;
		if (kind != MAPPING)
			return 0;
	}
	return 0;
}

// copied queues a copy. As with drivers, pageable memory that is copied from is read before the call returns, and one that is
// copied to is written before it returns.
static int copied(int dev, uint64_t dst, uint64_t src, size_t n, uint64_t stream) {
	struct stream *s = stream_of(stream, dev);
	int to = 0, from = 0;
	if (!s)
		return BAD_HANDLE;
	if (n == 0)
		return 0;
	if (!inside(dst, n, &to) || !inside(src, n, &from))
		return INVALID;
	struct task *t = new_task(COPY, 0);
	t->dst = dst;
	t->src = src;
	t->n = n;
	if (from) {
		t->copied = malloc(n);
		memcpy(t->copied, (void *)(uintptr_t)src, n);
	}
	push(s, t);
	return to ? drain(s) : 0;
}

#ifdef FAKE_HIP
DEF(, hipMemcpyAsync, (uint64_t dst, uint64_t src, size_t n, int kind, uint64_t stream)) {
	START("hipMemcpyAsync\0" "cuMemcpyAsync")
	code = kind != 4 ? INVALID : copied(dev, dst, src, n, stream);
	END
}

DEF(, hipMemcpyPeerAsync, (uint64_t dst, int to, uint64_t src, int from, size_t n, uint64_t stream)) {
	START("hipMemcpyPeerAsync\0" "cuMemcpyPeerAsync")
	struct thing *d = around(dst), *s = around(src);
	code = !d || d->dev != to || !s || s->dev != from ? INVALID : copied(dev, dst, src, n, stream);
	END
}
#else
DEF(cuMemcpyAsync, , (uint64_t dst, uint64_t src, size_t n, uint64_t stream)) {
	START("cuMemcpyAsync")
	code = copied(dev, dst, src, n, stream);
	END
}

DEF(cuMemcpyPeerAsync, , (uint64_t dst, void *to, uint64_t src, void *from, size_t n, uint64_t stream)) {
	START("cuMemcpyPeerAsync")
	struct thing *d = around(dst), *s = around(src);
	code = !d || &contexts[d->dev] != to || !s || &contexts[s->dev] != from ? INVALID : copied(dev, dst, src, n, stream);
	END
}
#endif

DEF(cuMemsetD8Async, hipMemsetD8Async, (uint64_t dst, unsigned char value, size_t n, uint64_t stream)) {
	START(CALLED(cuMemsetD8Async, hipMemsetD8Async))
	struct stream *s = stream_of(stream, dev);
	int pageable = 0;
	code = !s ? BAD_HANDLE : !inside(dst, n, &pageable) || pageable ? INVALID : 0;
	if (!code && n) {
		struct task *t = new_task(SET, 0);
		t->dst = dst;
		t->value = value;
		t->n = n;
		push(s, t);
	}
	END
}

DEF(cuStreamCreateWithPriority, hipStreamCreateWithPriority, (uint64_t * stream, unsigned flags, int priority)) {
	(void)priority;
	START(CALLED(cuStreamCreateWithPriority, hipStreamCreateWithPriority))
	if (flags != 1) {
		code = INVALID;
	} else {
		struct thing *t = make(STREAM, dev);
		t->object = new_stream(dev);
		*stream = name_of(t);
	}
	END
}

// A stream that is destroyed does what it has, and then ends.
DEF(cuStreamDestroy_v2, hipStreamDestroy, (uint64_t stream)) {
	START(CALLED(cuStreamDestroy_v2, hipStreamDestroy))
	struct stream *s = stream ? stream_of(stream, dev) : NULL;
	if (s) {
		s->ending = 1;
		pthread_cond_signal(&s->wake);
		drop(named(STREAM, stream));
	} else {
		code = BAD_HANDLE;
	}
	END
}

DEF(cuStreamQuery, hipStreamQuery, (uint64_t stream)) {
	OUTSIDE(CALLED(cuStreamQuery, hipStreamQuery))
	struct thing *t = stream ? named(STREAM, stream) : NULL;
	dev = t ? t->dev : here();
	struct stream *s = t ? t->object : dev < 0 ? NULL : defaults[dev];
	if (stream && !t)
		code = BAD_HANDLE;
	else if (dev < 0 || broken[dev])
		code = dev < 0 ? NO_CONTEXT : broken[dev];
	else
		code = s && s->head ? NOT_READY : 0;
	END
}

// An event is the place where it was recorded last.
struct event {
	struct point *at;
	int timing;
};

DEF(cuStreamWaitEvent, hipStreamWaitEvent, (uint64_t stream, uint64_t event, unsigned flags)) {
	(void)flags;
	START(CALLED(cuStreamWaitEvent, hipStreamWaitEvent))
	struct stream *s = stream_of(stream, dev);
	struct thing *e = named(EVENT, event);
	struct point *p = e ? ((struct event *)e->object)->at : NULL;
	code = !s || !e ? BAD_HANDLE : 0;
	if (!code && p) { // one that was never recorded keeps nobody waiting
		struct task *t = new_task(WAIT, 0);
		t->point = p;
		p->refs++;
		push(s, t);
	}
	END
}

DEF(cuCtxGetStreamPriorityRange, hipDeviceGetStreamPriorityRange, (int *least, int *greatest)) {
	START(CALLED(cuCtxGetStreamPriorityRange, hipDeviceGetStreamPriorityRange))
	*least = 0;
	*greatest = -5;
	END
}

DEF(cuEventCreate, hipEventCreateWithFlags, (uint64_t * event, unsigned flags)) {
	START(CALLED(cuEventCreate, hipEventCreateWithFlags))
	struct thing *t = make(EVENT, dev);
	struct event *e = t->object = calloc(1, sizeof(*e));
	e->timing = !(flags & 2);
	*event = name_of(t);
	END
}

DEF(cuEventDestroy_v2, hipEventDestroy, (uint64_t event)) {
	START(CALLED(cuEventDestroy_v2, hipEventDestroy))
	struct thing *t = named(EVENT, event);
	if (t) {
		let_go(((struct event *)t->object)->at);
		free(t->object);
		drop(t);
	} else {
		code = BAD_HANDLE;
	}
	END
}

DEF(cuEventRecord, hipEventRecord, (uint64_t event, uint64_t stream)) {
	START(CALLED(cuEventRecord, hipEventRecord))
	struct thing *t = named(EVENT, event);
	struct stream *s = stream_of(stream, dev);
	code = !t || t->dev != dev || !s ? BAD_HANDLE : 0;
	if (!code) {
		struct event *e = t->object;
		let_go(e->at);
		e->at = push_point(s);
	}
	END
}

DEF(cuEventQuery, hipEventQuery, (uint64_t event)) {
	OUTSIDE(CALLED(cuEventQuery, hipEventQuery))
	struct thing *t = named(EVENT, event);
	struct event *e = t ? t->object : NULL;
	code = !t ? BAD_HANDLE : broken[t->dev] ? broken[t->dev] : e->at && !e->at->done ? NOT_READY : 0;
	END
}

DEF(cuEventElapsedTime, hipEventElapsedTime, (float *ms, uint64_t from, uint64_t to)) {
	OUTSIDE(CALLED(cuEventElapsedTime, hipEventElapsedTime))
	struct thing *f = named(EVENT, from), *t = named(EVENT, to);
	struct event *a = f ? f->object : NULL, *b = t ? t->object : NULL;
	if (!a || !b || !a->timing || !b->timing || !a->at || !b->at)
		code = BAD_HANDLE;
	else if (!a->at->done || !b->at->done)
		code = NOT_READY;
	else
		*ms = (float)(b->at->when.tv_sec - a->at->when.tv_sec) * 1e3f + (float)(b->at->when.tv_nsec - a->at->when.tv_nsec) * 1e-6f;
	END
}
