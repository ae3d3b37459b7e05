// SPDX-License-Identifier: MIT

// What fast_shmem.c and fast_shmem_wait.c share.
#pragma once
#include "fast_operand.h"

// What waits stands between these: it has no GIL, and the thread can be asked.
void mori_begin_wait(void);
void mori_end_wait(void);

// All answer 0, or -1 with the Python error set.
int mori_finish(int answer, mori_reply *reply); // raises what a call answered
int mori_order(int kind);                       // fence, quiet, barrier_all, sync_all
int mori_usage(Py_ssize_t nargs, Py_ssize_t want, const char *usage);
int mori_to_int(PyObject *o, int64_t *out);
int mori_word(PyObject *o, PyObject *dtype, const char *name, operand *x, element *t); // one element
int mori_signal(PyObject *o, operand *x, element *t);                                  // a word of 8 bytes

PyObject *mori_shmem_wait(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *mori_shmem_signal_fetch(PyObject *self, PyObject *sig);
PyObject *mori_shmem_signal_wait_until(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *mori_shmem_team(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

extern PyMethodDef mori_shmem_methods[];
extern PyMethodDef mori_ep_methods[];
