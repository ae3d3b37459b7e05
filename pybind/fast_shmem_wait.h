// SPDX-License-Identifier: MIT

// Shared by fast_shmem.c and fast_shmem_wait.c.
#pragma once
#include "fast_operand.h"

// Enclose a call that waits: the GIL is released, and mori_ask_python works on this thread.
void mori_begin_wait(void);
void mori_end_wait(void);

// All return 0, or -1 with the Python error set.
int mori_finish(int answer, mori_reply *reply); // raises the error that a call returned
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
