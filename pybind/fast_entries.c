// SPDX-License-Identifier: MIT

// The entries of a batch: three Python sequences of thousands of integers. Each array is read once.
// Arrays of 64-bit integers are not copied. Sizes that are all equal, like those of a cache's
// blocks, become one number.

#include "fast_py.h"

// kAhead is how many elements ahead of the conversion a list's objects are prefetched. They are
// scattered in memory, and three lists of 1000 elements usually miss the cache. Prefetching saves 5
// to 13 us per post.
enum { kAhead = 16 };

// kEven is the number of entries from which equal sizes are detected.
enum { kEven = 32 };

// Buffers for numbers that are free for reuse, since new memory costs a page fault per page. The
// GIL guards them.
enum { kRooms = 3, kMostRoom = 1 << 16 };

static struct room {
	uint64_t *v;
	Py_ssize_t room;
} rooms[kRooms];

static int numbers_room(numbers *to, Py_ssize_t n) {
	to->n = n;
	to->v = to->small;
	if (n <= (Py_ssize_t)(sizeof to->small / sizeof to->small[0])) {
		return 0;
	}
#ifndef Py_GIL_DISABLED
	for (struct room *r = rooms; r < rooms + kRooms; r++) {
		if (r->room >= n) {
			to->v = r->v;
			to->room = r->room;
			*r = (struct room){0};
			return 0;
		}
	}
#endif
	to->room = n;
	to->v = PyMem_New(uint64_t, n);
	if (to->v == NULL) {
		to->v = to->small;
		PyErr_NoMemory();
		return -1;
	}
	return 0;
}

static void numbers_free(numbers *x) {
	if (x->view.obj) {
		PyBuffer_Release(&x->view);
	} else if (x->v != x->small) {
#ifndef Py_GIL_DISABLED
		for (struct room *r = rooms; x->room <= kMostRoom && r < rooms + kRooms; r++) {
			if (r->v == NULL) {
				*r = (struct room){x->v, x->room};
				return;
			}
		}
#endif
		PyMem_Free(x->v);
	}
}

// own replaces a view by a private copy that no other code can change.
static int own(numbers *x) {
	if (x->view.obj == NULL) {
		return 0;
	}
	const uint64_t *from = x->v;
	Py_buffer view = x->view;
	x->view.obj = NULL;
	int bad = numbers_room(x, x->n);
	if (!bad) {
		memcpy(x->v, from, (size_t)x->n * sizeof *from);
	}
	PyBuffer_Release(&view);
	return bad;
}

// any_negative checks four numbers at a time, because compilers do not vectorize the simple loop.
static int any_negative(const uint64_t *v, Py_ssize_t n) {
	uint64_t a = 0, b = 0, c = 0, d = 0;
	Py_ssize_t i = 0;
	for (; i + 4 <= n; i += 4) {
		a |= v[i], b |= v[i + 1], c |= v[i + 2], d |= v[i + 3];
	}
	for (; i < n; i++) {
		a |= v[i];
	}
	return (int64_t)(a | b | c | d) < 0;
}

static int all_equal(const uint64_t *v, Py_ssize_t n) {
	uint64_t first = v[0], a = 0, b = 0, c = 0, d = 0;
	Py_ssize_t i = 0;
	for (; i + 4 <= n; i += 4) {
		a |= v[i] ^ first, b |= v[i + 1] ^ first, c |= v[i + 2] ^ first, d |= v[i + 3] ^ first;
	}
	for (; i < n; i++) {
		a |= v[i] ^ first;
	}
	return (a | b | c | d) == 0;
}

// from_buffer views a one-dimensional buffer of 64-bit integers (NumPy's int64 and uint64). It
// returns 0 if o is not such a buffer.
static int from_buffer(PyObject *o, numbers *to) {
	if (!PyObject_CheckBuffer(o)) {
		return 0;
	}
	if (PyObject_GetBuffer(o, &to->view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS)) {
		PyErr_Clear();
		to->view.obj = NULL;
		return 0;
	}
	const Py_buffer *b = &to->view;
	char f = b->format && b->format[0] && !b->format[1] ? b->format[0] : 0;
	int is_signed = f == 'l' || f == 'q';
	if (b->ndim != 1 || b->itemsize != 8 || (!is_signed && f != 'L' && f != 'Q') || (uintptr_t)b->buf % sizeof(uint64_t)) {
		PyBuffer_Release(&to->view);
		return 0;
	}
	to->v = b->buf;
	to->n = b->len / 8;
	if (is_signed && any_negative(to->v, to->n)) {
		for (Py_ssize_t i = 0; i < to->n; i++) {
			int64_t v = (int64_t)to->v[i];
			if (v < 0) {
				PyErr_Format(PyExc_TypeError, "%lld is not in 0..2**64-1", (long long)v);
				break;
			}
		}
		if (!PyErr_Occurred()) {
			PyErr_SetString(PyExc_RuntimeError, "an array changed while it was read");
		}
		return -1;
	}
	return 1;
}

// plain_ints converts items from index i on. It stops at the first item that is not a plain int
// below 2^60 and returns its index. No Python code runs meanwhile.
static Py_ssize_t plain_ints(PyObject **items, Py_ssize_t i, Py_ssize_t n, uint64_t *to) {
	for (; i < n && PyLong_CheckExact(items[i]) && mori_small(items[i], &to[i]); i++) {
		if (i + kAhead < n) {
			__builtin_prefetch(items[i + kAhead]);
		}
	}
	return i;
}

// from_items converts the elements of a list or tuple. items is borrowed.
static int from_items(PyObject *items, numbers *to, const char *what) {
	Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
	if (numbers_room(to, n)) {
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		i = plain_ints(PySequence_Fast_ITEMS(items), i, Py_MIN(n, PySequence_Fast_GET_SIZE(items)), to->v);
		if (i == n) {
			break;
		}
		// __index__ of an element may modify the list
		if (i >= PySequence_Fast_GET_SIZE(items) || mori_to_u64(PySequence_Fast_GET_ITEM(items, i), &to->v[i])) {
			if (!PyErr_Occurred()) {
				PyErr_Format(PyExc_RuntimeError, "%s changed while it was read", what);
			}
			return -1;
		}
	}
	return 0;
}

// one_object reports whether all items are the same int object, as in [4096] * 8192. Then comparing
// pointers is enough.
static int one_object(PyObject *items) {
	Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
	PyObject **all = PySequence_Fast_ITEMS(items);
	if (n < kEven || !PyLong_CheckExact(all[0])) {
		return 0;
	}
	for (Py_ssize_t i = 1; i < n; i++) {
		if (all[i] != all[0]) {
			return 0;
		}
	}
	return 1;
}

// to_numbers converts any sequence of integers. It rejects text, bytes, sets and iterators. If
// `one` is given and all numbers are equal, it stores only the first and sets *one to 1. The caller
// calls numbers_free, also after an error.
static int to_numbers(PyObject *o, numbers *to, const char *what, int *one) {
	to->v = to->small;
	to->view.obj = NULL;
	if (!PyList_CheckExact(o) && !PyTuple_CheckExact(o)) {
		if (PyUnicode_Check(o) || PyBytes_Check(o) || PyByteArray_Check(o) || !PySequence_Check(o)) {
			PyErr_Format(PyExc_TypeError, "%s is %.100s, want a sequence of integers", what, Py_TYPE(o)->tp_name);
			return -1;
		}
		int answer = from_buffer(o, to);
		if (answer) {
			if (answer > 0 && one && to->n >= kEven) {
				*one = all_equal(to->v, to->n);
			}
			return answer < 0 ? -1 : 0;
		}
	}
	PyObject *items = PySequence_Fast(o, what);
	if (items == NULL) {
		return -1;
	}
	int bad = 0;
	if (one && one_object(items)) {
		to->n = PySequence_Fast_GET_SIZE(items);
		bad = mori_to_u64(PySequence_Fast_GET_ITEM(items, 0), to->v);
		*one = 1;
	} else {
		bad = from_items(items, to, what);
		if (!bad && one && to->n >= kEven) {
			*one = all_equal(to->v, to->n);
		}
	}
	Py_DECREF(items);
	return bad;
}

// every expands a single size to one size per entry.
static int every(numbers *sz) {
	if (sz->view.obj || sz->v != sz->small) {
		return 0; // already one per entry
	}
	uint64_t size = sz->small[0];
	if (numbers_room(sz, sz->n)) {
		return -1;
	}
	for (Py_ssize_t i = 0; i < sz->n; i++) {
		sz->v[i] = size;
	}
	return 0;
}

int mori_to_entries(PyObject *const *args, entries *e) {
	e->one = 0;
	e->ro.v = e->ro.small, e->sz.v = e->sz.small;
	e->ro.view.obj = e->sz.view.obj = NULL;
	if (to_numbers(args[0], &e->lo, "local_offsets", NULL) || to_numbers(args[1], &e->ro, "remote_offsets", NULL) ||
	    to_numbers(args[2], &e->sz, "sizes", &e->one)) {
		mori_entries_free(e);
		return -1;
	}
	e->size = e->one ? e->sz.v[0] : 0;
	if (e->one && e->sz.n == e->lo.n && e->sz.n == e->ro.n && e->size > 0 && e->size <= UINT32_MAX) {
		return 0;
	}
	// Go reads these more than once.
	if ((e->one && every(&e->sz)) || own(&e->lo) || own(&e->ro) || own(&e->sz)) {
		mori_entries_free(e);
		return -1;
	}
	e->one = 0;
	return 0;
}

void mori_entries_free(entries *e) {
	numbers_free(&e->lo);
	numbers_free(&e->ro);
	numbers_free(&e->sz);
}
