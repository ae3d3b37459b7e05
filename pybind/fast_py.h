// SPDX-License-Identifier: MIT

// What the C files of the hot functions share.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>

#include "fast.h"

enum { CODE_SUCCESS = 0, CODE_INIT = 1, CODE_IN_PROGRESS = 2, CODE_ERR = 10, CODE_LIMIT = 64 };

// A status as Python holds it.
typedef struct {
	PyObject_HEAD
	uint64_t id;
	_Atomic uint32_t *word; // code; word[1] counts parked threads
} Status;

// An array of numbers, on the stack while it is short.
typedef struct {
	uint64_t *v;
	Py_ssize_t n;
	uint64_t small[16];
} numbers;

#define KEYWORDS(f) ((PyCFunction)(void (*)(void))(f))

// fast.c
extern volatile int mori_forked;                     // set in children of a process that loaded us
int mori_usable(void);                               // 0 with ForkError set in such a child
int mori_fail_answer(int answer, const char *what);  // -1 with the Python error for a MORI_ answer set

// fast_after.c
PyObject *mori_post_after(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

// fast_status.c
extern PyTypeObject *mori_status_type;
int mori_make_status_type(PyObject *base, PyObject *codes);  // once; codes: {number: member}
Status *mori_wrap(mori_status_ref ref);
PyObject *mori_new_status(void);
int mori_parse_code(PyObject *o, uint32_t *code);    // takes a StatusCode or its number
int mori_update(uint64_t id, int what, uint32_t code, PyObject *message);

// fast_wait.c
PyObject *mori_status_wait(PyObject *self, PyObject *unused);
int mori_wait_for(Status *s, long long timeout_ms);  // negative: for ever; 0: not at all. -1: a signal handler raised
PyObject *mori_wait_all(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

// fast_numbers.c
int mori_to_u64(PyObject *o, uint64_t *out);
int mori_to_numbers(PyObject *o, numbers *to, const char *what);
void mori_numbers_free(numbers *x);
