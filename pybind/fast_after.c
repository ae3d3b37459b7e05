// SPDX-License-Identifier: MIT

// Posting behind a GPU's event or stream. It keeps the GIL, as posting does: recording an event takes a driver some microseconds.

#include "_cgo_export.h"

#include "fast_py.h"

#define USAGE "post_after(session, is_write, local_offsets, remote_offsets, sizes, uid, on_stream, handle, gpu[, tag])"

// What a transfer waits for.
typedef struct {
	int on_stream;
	uint64_t handle, gpu;
} gate;

typedef struct {
	uint64_t session, uid;
	int write;
	const char *tag; // owned by its Python string; NULL: none
	Py_ssize_t ntag;
	gate after;
} posting;

static PyObject *post(posting *p, numbers *lo, numbers *ro, numbers *sz) {
	mori_status_ref ref;
	char *words = NULL;
	int answer = moriPostAfter(p->session, p->write, lo->v, ro->v, sz->v, lo->n, ro->n, sz->n, p->uid, (char *)p->tag, p->ntag,
	                           p->after.on_stream, p->after.handle, p->after.gpu, 0, &ref, &words);
	if (answer == MORI_WOULD_WAIT) {
		Py_BEGIN_ALLOW_THREADS
		answer = moriPostAfter(p->session, p->write, lo->v, ro->v, sz->v, lo->n, ro->n, sz->n, p->uid, (char *)p->tag, p->ntag,
		                       p->after.on_stream, p->after.handle, p->after.gpu, 1, &ref, &words);
		Py_END_ALLOW_THREADS
	}
	if (words) {
		PyErr_SetString(PyExc_RuntimeError, words);
		free(words);
		return NULL;
	}
	if (answer != MORI_OK) {
		mori_fail_answer(answer, "session");
		return NULL;
	}
	return (PyObject *)mori_wrap(ref);
}

static int head(PyObject *const *args, Py_ssize_t nargs, posting *p) {
	if (nargs != 9 && nargs != 10) {
		PyErr_Format(PyExc_TypeError, USAGE ", got %zd arguments", nargs);
		return -1;
	}
	if (!mori_usable() || mori_to_u64(args[0], &p->session) || (p->write = PyObject_IsTrue(args[1])) < 0 || mori_to_u64(args[5], &p->uid) ||
	    (p->after.on_stream = PyObject_IsTrue(args[6])) < 0 || mori_to_u64(args[7], &p->after.handle) || mori_to_u64(args[8], &p->after.gpu)) {
		return -1;
	}
	p->tag = NULL;
	p->ntag = 0;
	if (nargs == 10 && (p->tag = PyUnicode_AsUTF8AndSize(args[9], &p->ntag)) == NULL) {
		return -1;
	}
	if (mori_status_type == NULL) {
		PyErr_SetString(PyExc_RuntimeError, "E_STATE|posting needs setup(base, codes) first");
		return -1;
	}
	return 0;
}

PyObject *mori_post_after(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	posting p;
	numbers lo, ro, sz;
	PyObject *out = NULL;
	if (head(args, nargs, &p) || mori_to_numbers(args[2], &lo, "local_offsets")) {
		return NULL;
	}
	if (mori_to_numbers(args[3], &ro, "remote_offsets") == 0) {
		if (mori_to_numbers(args[4], &sz, "sizes") == 0) {
			out = post(&p, &lo, &ro, &sz);
			mori_numbers_free(&sz);
		}
		mori_numbers_free(&ro);
	}
	mori_numbers_free(&lo);
	return out;
}
