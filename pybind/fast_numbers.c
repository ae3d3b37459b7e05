// SPDX-License-Identifier: MIT

// Python integers as 64-bit numbers.

#include "fast_py.h"

int mori_convert(PyObject *n, uint64_t *out) {
	unsigned long long v = PyLong_AsUnsignedLongLong(n);
	if (v == (unsigned long long)-1 && PyErr_Occurred()) {
		PyErr_Clear();
		PyErr_Format(PyExc_TypeError, "%R is not in 0..2**64-1", n);
		return -1;
	}
	*out = v;
	return 0;
}

int mori_convert_index(PyObject *o, uint64_t *out) {
	PyObject *n = PyNumber_Index(o);
	if (n == NULL) {
		return -1;
	}
	int bad = mori_convert(n, out);
	Py_DECREF(n);
	return bad;
}
