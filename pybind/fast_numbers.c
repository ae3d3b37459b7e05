// SPDX-License-Identifier: MIT

// Python integers and sequences of them as 64-bit numbers.

#include "fast_py.h"

#if PY_VERSION_HEX < 0x030B0000
#include <longintrepr.h>
#endif

// small reads an int of up to 60 bits that is not negative from its digits, of 30 bits as a rule; 0: ask Python, who also has the words for what
// is refused. Lists have thousands of offsets, and Python takes 10 ns for each beyond 30 bits.
static inline int small(PyObject *n, uint64_t *out) {
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

// kAhead is how many elements ahead of the conversion a list's objects are fetched: they lie anywhere, and three lists of 1000
// miss the cache more often than not. It takes 5 to 13 us off such a post.
enum { kAhead = 16 };

// convert takes an int within 0..2^64-1.
static int convert(PyObject *n, uint64_t *out) {
	unsigned long long v = PyLong_AsUnsignedLongLong(n);
	if (v == (unsigned long long)-1 && PyErr_Occurred()) {
		PyErr_Clear();
		PyErr_Format(PyExc_TypeError, "%R is not in 0..2**64-1", n);
		return -1;
	}
	*out = v;
	return 0;
}

// mori_to_u64 converts one element: int, bool, or anything with __index__.
int mori_to_u64(PyObject *o, uint64_t *out) {
	if (PyLong_CheckExact(o)) {
		return small(o, out) ? 0 : convert(o, out);
	}
	PyObject *n = PyNumber_Index(o);
	if (n == NULL) {
		return -1;
	}
	int bad = convert(n, out);
	Py_DECREF(n);
	return bad;
}

static int numbers_room(numbers *to, Py_ssize_t n) {
	to->n = n;
	to->v = n <= 16 ? to->small : PyMem_New(uint64_t, n);
	if (to->v == NULL) {
		PyErr_NoMemory();
		return -1;
	}
	return 0;
}

void mori_numbers_free(numbers *x) {
	if (x->v != x->small) {
		PyMem_Free(x->v);
	}
}

// from_buffer copies a one-dimensional buffer of 64-bit integers (NumPy's int64 and uint64). 0: not such a buffer.
static int from_buffer(PyObject *o, numbers *to) {
	Py_buffer b;
	if (!PyObject_CheckBuffer(o)) {
		return 0;
	}
	if (PyObject_GetBuffer(o, &b, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS)) {
		PyErr_Clear();
		return 0;
	}
	char f = b.format && b.format[0] && !b.format[1] ? b.format[0] : 0;
	int is_signed = f == 'l' || f == 'q';
	int answer = 0;
	if (b.ndim == 1 && b.itemsize == 8 && (is_signed || f == 'L' || f == 'Q')) {
		answer = numbers_room(to, b.len / 8) ? -1 : 1;
		if (answer > 0) {
			memcpy(to->v, b.buf, (size_t)b.len);
		}
		for (Py_ssize_t i = 0; answer > 0 && is_signed && i < to->n; i++) {
			if ((int64_t)to->v[i] < 0) {
				PyErr_Format(PyExc_TypeError, "%lld is not in 0..2**64-1", (long long)to->v[i]);
				mori_numbers_free(to);
				answer = -1;
			}
		}
	}
	PyBuffer_Release(&b);
	return answer;
}

// mori_to_numbers converts any sequence of integers; text, bytes, sets and iterators are refused.
int mori_to_numbers(PyObject *o, numbers *to, const char *what) {
	to->v = to->small;
	if (!PyList_CheckExact(o) && !PyTuple_CheckExact(o)) {
		if (PyUnicode_Check(o) || PyBytes_Check(o) || PyByteArray_Check(o) || !PySequence_Check(o)) {
			PyErr_Format(PyExc_TypeError, "%s is %.100s, want a sequence of integers", what, Py_TYPE(o)->tp_name);
			return -1;
		}
		int answer = from_buffer(o, to);
		if (answer) {
			return answer < 0 ? -1 : 0;
		}
	}
	PyObject *items = PySequence_Fast(o, what);
	if (items == NULL) {
		return -1;
	}
	Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
	if (numbers_room(to, n)) {
		Py_DECREF(items);
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		if (i + kAhead < PySequence_Fast_GET_SIZE(items)) {
			__builtin_prefetch(PySequence_Fast_GET_ITEM(items, i + kAhead));
		}
		// __index__ of an element may change the list
		if (i >= PySequence_Fast_GET_SIZE(items) || mori_to_u64(PySequence_Fast_GET_ITEM(items, i), &to->v[i])) {
			if (!PyErr_Occurred()) {
				PyErr_Format(PyExc_RuntimeError, "%s changed while it was read", what);
			}
			mori_numbers_free(to);
			Py_DECREF(items);
			return -1;
		}
	}
	Py_DECREF(items);
	return 0;
}
