// SPDX-License-Identifier: MIT

// What fast_ep.c and fast_ep_again.c share.
#pragma once
#include "fast_ep.h"
#include "fast_shmem_wait.h"

// ep_again(view, place): what knows the last calls of an op on the GPU with this number, and the class of arrays that have no framework.
PyObject *mori_ep_again(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
