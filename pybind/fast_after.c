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

static int post_to(const posting *p, const entries *e, int may_wait, mori_status_ref *ref, char **words) {
	return moriPostAfter(p->session, p->write, e->lo.v, e->ro.v, e->sz.v, e->lo.n, e->ro.n, e->sz.n, e->one, e->size, p->uid, (char *)p->tag, p->ntag,
	                     p->after.on_stream, p->after.handle, p->after.gpu, may_wait, ref, words);
}

static PyObject *post(const posting *p, const entries *e) {
	mori_status_ref ref;
	char *words = NULL;
	int answer = post_to(p, e, 0, &ref, &words);
	if (answer == MORI_WOULD_WAIT) {
		Py_BEGIN_ALLOW_THREADS
		answer = post_to(p, e, 1, &ref, &words);
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
	entries e;
	if (head(args, nargs, &p) || mori_to_entries(args + 2, &e)) {
		return NULL;
	}
	PyObject *out = post(&p, &e);
	mori_entries_free(&e);
	return out;
}
