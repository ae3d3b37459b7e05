// SPDX-License-Identifier: MIT

// A wait yields for a while, then parks on the status word as a futex. It returns to Python every
// 100 ms for signals.

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fast_py.h"

static const int64_t kSliceNs = 100 * 1000 * 1000;
// How long a waiter yields its core in a loop before it parks. Parking lets the core sleep, and
// waking it takes tens of microseconds on a virtual machine. On an idle one with 2 cores, a plain
// TCP ping-pong of two C programs takes 108 us, and 35 with a waiter that stays awake. It yields so
// that runnable threads can run.
static const int64_t kSpinNs = 100 * 1000;

static int64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// park waits until *word is not IN_PROGRESS or the time `until` is reached. Called without the GIL.
static void park(_Atomic uint32_t *word, int64_t until) {
	int64_t spin = now_ns() + kSpinNs;
	do {
		if (atomic_load(word) != CODE_IN_PROGRESS) {
			return;
		}
		sched_yield();
	} while (now_ns() < spin);
	atomic_fetch_add(word + 1, 1);
	while (atomic_load(word) == CODE_IN_PROGRESS) {
		int64_t left = until - now_ns();
		if (left <= 0) {
			break;
		}
		struct timespec t = {left / 1000000000, left % 1000000000};
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, CODE_IN_PROGRESS, &t, NULL, 0);
	}
	atomic_fetch_sub(word + 1, 1);
}

// wait_until blocks until the status is not in progress or the time `until` is reached (negative:
// no limit). It returns -1 if a signal handler raised.
static int wait_until(Status *s, int64_t until) {
	while (atomic_load(s->word) == CODE_IN_PROGRESS) {
		int64_t now = now_ns(), end = now + kSliceNs;
		if (until >= 0 && now >= until) {
			return 0;
		}
		if (until >= 0 && until < end) {
			end = until;
		}
		Py_BEGIN_ALLOW_THREADS
		park(s->word, end);
		Py_END_ALLOW_THREADS
		if (PyErr_CheckSignals()) {
			return -1;
		}
	}
	return 0;
}

static int64_t deadline_of(long long timeout_ms) {
	if (timeout_ms < 0) {
		return -1;
	}
	if (timeout_ms > 1000LL * 3600 * 24 * 365) {
		timeout_ms = 1000LL * 3600 * 24 * 365;
	}
	return now_ns() + timeout_ms * 1000000;
}

PyObject *mori_status_wait(PyObject *self, PyObject *unused) {
	(void)unused;
	if (!mori_usable() || wait_until((Status *)self, -1)) {
		return NULL;
	}
	Py_RETURN_NONE;
}

int mori_wait_for(Status *s, long long timeout_ms) {
	return timeout_ms == 0 ? 0 : wait_until(s, deadline_of(timeout_ms));
}

// collect stores the statuses of items in out, as borrowed references, and skips None. It returns
// -1 if another object was in items.
static Py_ssize_t collect(PyObject *items, Status **out) {
	Py_ssize_t n = 0;
	for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
		PyObject *o = PySequence_Fast_GET_ITEM(items, i);
		if (o == Py_None) {
			continue;
		}
		if (!PyObject_TypeCheck(o, mori_status_type)) {
			PyErr_Format(PyExc_TypeError, "statuses[%zd] is %.100s, want TransferStatus or None", i, Py_TYPE(o)->tp_name);
			return -1;
		}
		out[n++] = (Status *)o;
	}
	return n;
}

// wait_list waits for all statuses or the deadline. It returns the first code in list order that is
// neither SUCCESS nor IN_PROGRESS, else IN_PROGRESS if any status has it, else SUCCESS. A zero
// timeout polls. It returns -1 if a signal handler raised.
static int wait_list(Status **all, Py_ssize_t n, long long ms) {
	int64_t until = deadline_of(ms);
	int bad = CODE_SUCCESS, unfinished = 0;
	for (Py_ssize_t i = 0; i < n; i++) {
		if (ms != 0 && wait_until(all[i], until)) {
			return -1;
		}
		uint32_t code = atomic_load(all[i]->word);
		if (code == CODE_IN_PROGRESS) {
			unfinished = 1;
		} else if (code != CODE_SUCCESS && bad == CODE_SUCCESS) {
			bad = (int)code;
		}
	}
	return bad != CODE_SUCCESS ? bad : unfinished ? CODE_IN_PROGRESS : CODE_SUCCESS;
}

PyObject *mori_wait_all(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	if (nargs != 2) {
		PyErr_SetString(PyExc_TypeError, "wait_all(statuses, timeout_ms)");
		return NULL;
	}
	long long ms = PyLong_AsLongLong(args[1]);
	if (!mori_usable() || (ms == -1 && PyErr_Occurred())) {
		return NULL;
	}
	// Copy the list, so that other code cannot change it during the wait.
	PyObject *items = PySequence_Tuple(args[0]);
	if (items == NULL) {
		return NULL;
	}
	Status **all = PyMem_New(Status *, PyTuple_GET_SIZE(items) + 1);
	Py_ssize_t n = all ? collect(items, all) : -1;
	int code = n < 0 ? -1 : wait_list(all, n, ms);
	PyMem_Free(all);
	Py_DECREF(items);
	if (code < 0) {
		return PyErr_Occurred() ? NULL : PyErr_NoMemory();
	}
	return PyLong_FromLong(code);
}
