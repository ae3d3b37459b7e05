// SPDX-License-Identifier: MIT

// Posting transfers: one C function for all callers in Python and all options.
//
// Posting holds the GIL. It takes a few microseconds, and releasing the GIL beside a busy Python
// thread costs over a hundred. Only a post that has to open a connection releases it.

#include "_cgo_export.h"

#include "fast_py.h"

static PyObject *parse_options; // mori.io._transfer.options
static PyObject *translate;     // mori._errors.from_native

int mori_post_setup(PyObject *options, PyObject *from_native) {
	Py_XSETREF(parse_options, Py_NewRef(options));
	Py_XSETREF(translate, Py_NewRef(from_native));
	return 0;
}

// typed replaces a RuntimeError of the extension by the exception that it represents. It returns
// NULL.
static PyObject *typed(void) {
	PyObject *type, *value, *trace;
	PyErr_Fetch(&type, &value, &trace);
	PyErr_NormalizeException(&type, &value, &trace);
	if (type == PyExc_RuntimeError && translate) {
		PyObject *better = PyObject_CallOneArg(translate, value);
		if (better == NULL) { // translate raised: keep its own error
			Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
			return NULL;
		}
		Py_SETREF(value, better);
		Py_SETREF(type, Py_NewRef((PyObject *)Py_TYPE(better)));
	}
	PyErr_Restore(type, value, trace);
	return NULL;
}

static PyObject *submit(mori_transfer *t) {
	mori_status_ref ref;
	char *why = NULL;
	if (mori_status_type == NULL) {
		PyErr_SetString(PyExc_RuntimeError, "E_STATE|posting needs setup(base, codes, options, from_native) first");
		return NULL;
	}
	t->may_wait = 0;
	int answer = moriPost(t, &ref, &why);
	if (answer == MORI_WOULD_WAIT) {
		t->may_wait = 1;
		Py_BEGIN_ALLOW_THREADS
		answer = moriPost(t, &ref, &why);
		Py_END_ALLOW_THREADS
	}
	if (why) {
		PyErr_SetString(PyExc_RuntimeError, why);
		free(why);
		return NULL;
	}
	if (answer != MORI_OK) {
		mori_fail_answer(answer, "session");
		return NULL;
	}
	return (PyObject *)mori_wrap(ref);
}

// with_options fills in the options of a transfer from three arguments: deadline_ms, tag, after.
// The returned object keeps the tag alive.
static PyObject *with_options(PyObject *const *args, mori_transfer *t) {
	PyObject *found = PyObject_Vectorcall(parse_options, args, 3, NULL);
	Py_ssize_t ntag;
	long long deadline;
	unsigned long long handle, gpu;
	if (found == NULL || !PyArg_ParseTuple(found, "Ls#iKK", &deadline, &t->tag, &ntag, &t->after, &handle, &gpu)) {
		Py_XDECREF(found);
		return NULL;
	}
	t->ntag = ntag, t->deadline_ms = deadline, t->after_handle = handle, t->after_gpu = gpu;
	return found;
}

// post posts entries with the arguments that every form has: session, is_write, three for the
// entries, uid, and optionally three options.
static PyObject *post(PyObject *const *args, Py_ssize_t nargs, entries *e) {
	mori_transfer t = {
		.local = e->lo.v, .remote = e->ro.v, .sizes = e->sz.v, .nlocal = e->lo.n, .nremote = e->ro.n, .nsizes = e->sz.n,
		.block_size = e->one ? e->size : 0, .deadline_ms = -1,
	};
	if (mori_to_u64(args[0], &t.session) || (t.write = PyObject_IsTrue(args[1])) < 0 || mori_to_u64(args[5], &t.uid)) {
		return NULL;
	}
	if (nargs == 6 || (args[6] == Py_None && args[7] == Py_None && args[8] == Py_None)) {
		return submit(&t);
	}
	PyObject *options = with_options(args + 6, &t);
	PyObject *status = options ? submit(&t) : NULL;
	Py_XDECREF(options);
	return status;
}

static int usable(Py_ssize_t nargs, const char *usage) {
	if (nargs == 6 || nargs == 9) {
		return mori_usable();
	}
	PyErr_Format(PyExc_TypeError, "%s, got %zd arguments", usage, nargs);
	return 0;
}

PyObject *mori_post(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	entries e;
	if (!usable(nargs, "post(session, is_write, local_offsets, remote_offsets, sizes, uid[, deadline_ms, tag, after])")) {
		return NULL;
	}
	if (mori_to_entries(args + 2, &e)) {
		return typed();
	}
	PyObject *out = post(args, nargs, &e);
	mori_entries_free(&e);
	return out ? out : typed();
}

PyObject *mori_post_one(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	if (!usable(nargs, "post_one(session, is_write, local_offset, remote_offset, size, uid[, deadline_ms, tag, after])")) {
		return NULL;
	}
	entries e;
	numbers *x[] = {&e.lo, &e.ro, &e.sz};
	for (int i = 0; i < 3; i++) {
		x[i]->v = x[i]->small;
		x[i]->n = 1;
		if (mori_to_u64(args[2 + i], x[i]->v)) {
			return NULL;
		}
	}
	e.one = 0, e.size = 0;
	PyObject *out = post(args, nargs, &e);
	return out ? out : typed();
}
