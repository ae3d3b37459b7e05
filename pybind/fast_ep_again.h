// SPDX-License-Identifier: MIT

// Shared by fast_ep.c and fast_ep_again.c.
#pragma once
#include "fast_ep.h"
#include "fast_shmem_wait.h"

// ep_again(view, place) returns an object that remembers the last calls of an op on the GPU with
// this number. view is the class of arrays without a framework.
PyObject *mori_ep_again(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
