// SPDX-License-Identifier: MIT

// Shared by the C files of the hot functions.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>

#if PY_VERSION_HEX < 0x030B0000
#include <longintrepr.h>
#endif

#include "fast.h"

enum { CODE_SUCCESS = 0, CODE_INIT = 1, CODE_IN_PROGRESS = 2, CODE_ERR = 10, CODE_LIMIT = 64 };

// A status as Python holds it.
typedef struct {
	PyObject_HEAD
	uint64_t id;
	_Atomic uint32_t *word; // code; word[1] counts parked threads
} Status;

// An array of numbers: a view of another object's buffer, the embedded small array, or allocated
// memory for `room` numbers.
typedef struct {
	uint64_t *v;
	Py_ssize_t n, room;
	Py_buffer view; // no view if view.obj is NULL
	uint64_t small[16];
} numbers;

// The entries of a batch. If `one` is set, each of the lo.n entries has `size`, and others may
// write to lo and ro. Otherwise sz has the sizes, and the lengths may differ.
typedef struct {
	numbers lo, ro, sz;
	uint64_t size;
	int one;
} entries;

#define KEYWORDS(f) ((PyCFunction)(void (*)(void))(f))

// fast.c
extern volatile int mori_forked;                     // set in children of a process that loaded the extension
int mori_usable(void);                               // returns 0 with ForkError set in such a child
int mori_fail_answer(int answer, const char *what);  // returns -1 and sets the Python error for a MORI_ answer

// post.c
PyObject *mori_post(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *mori_post_one(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
int mori_post_setup(PyObject *options, PyObject *from_native);

// fast_status.c
extern PyTypeObject *mori_status_type;
int mori_make_status_type(PyObject *base, PyObject *codes);  // once; codes: {number: member}
Status *mori_wrap(mori_status_ref ref);
PyObject *mori_new_status(void);
int mori_parse_code(PyObject *o, uint32_t *code);    // takes a StatusCode or its number
int mori_update(uint64_t id, int what, uint32_t code, PyObject *message);

// fast_wait.c
PyObject *mori_status_wait(PyObject *self, PyObject *unused);
int mori_wait_for(Status *s, long long timeout_ms);  // timeout negative: forever, 0: poll; -1: a signal handler raised
PyObject *mori_wait_all(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

// fast_numbers.c
int mori_convert(PyObject *n, uint64_t *out);        // an int within 0..2^64-1
int mori_convert_index(PyObject *o, uint64_t *out);  // any object with __index__

// mori_small reads a non-negative int of up to 60 bits directly from its digits, usually of 30
// bits. It returns 0 for other ints: the caller then asks Python, which also raises the error for
// invalid ones. Lists have thousands of offsets, and Python takes 10 ns for each above 30 bits.
static inline int mori_small(PyObject *n, uint64_t *out) {
#if PYLONG_BITS_IN_DIGIT == 30 && PY_VERSION_HEX < 0x030F0000 && !defined(PYPY_VERSION)
#if PY_VERSION_HEX >= 0x030C0000
	const _PyLongValue *v = &((PyLongObject *)n)->long_value;
	uintptr_t digits = v->lv_tag >> 3;
	if ((v->lv_tag & 3) == 2 || digits > 2) {
		return 0;
	}
	const digit *d = v->ob_digit;
#else
	Py_ssize_t digits = Py_SIZE(n);
	if (digits < 0 || digits > 2) {
		return 0;
	}
	const digit *d = ((PyLongObject *)n)->ob_digit;
#endif
	*out = digits == 2 ? (uint64_t)d[0] | (uint64_t)d[1] << 30 : digits ? d[0] : 0;
	return 1;
#else
	(void)n;
	(void)out;
	return 0;
#endif
}

// mori_to_u64 converts one element: int, bool, or anything with __index__.
static inline int mori_to_u64(PyObject *o, uint64_t *out) {
	if (PyLong_CheckExact(o)) {
		return mori_small(o, out) ? 0 : mori_convert(o, out);
	}
	return mori_convert_index(o, out);
}

// fast_entries.c
int mori_to_entries(PyObject *const *args, entries *e);  // local offsets, remote offsets and sizes; on 0 the caller frees e
void mori_entries_free(entries *e);
