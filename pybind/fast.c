// SPDX-License-Identifier: MIT

// The hot functions of the extension, METH_FASTCALL, in the same library as Go's runtime.
//
// Posting keeps the GIL: it takes a few microseconds, and giving the GIL up beside a busy Python thread costs over a
// hundred. Only a post that has to open a connection, and everything that waits, releases it.

#include <pthread.h>

#include "_cgo_export.h"

#include "fast_shmem_wait.h"

volatile int mori_forked;

static void mark_forked(void) { mori_forked = 1; }

// mori_usable raises ForkError in a mori_forked child. Go's threads do not exist there, so any call would hang.
int mori_usable(void) {
	if (!mori_forked) {
		return 1;
	}
	PyObject *errors = PyImport_ImportModule("mori._errors");
	PyObject *type = errors ? PyObject_GetAttrString(errors, "ForkError") : NULL;
	Py_XDECREF(errors);
	if (type) {
		PyErr_SetString(type, "mori was started before this process was mori_forked and cannot be used in the child; "
		                      "start processes with spawn or forkserver, or use mori only after the fork");
		Py_DECREF(type);
	}
	return 0;
}

int mori_fail_answer(int answer, const char *what) {
	if (answer == MORI_STALE) {
		PyErr_Format(PyExc_RuntimeError, "E_STATE|%s is closed", what);
	} else {
		PyErr_Format(PyExc_SystemError, "%s: internal error %d, see standard output", what, answer);
	}
	return -1;
}

// What both forms of posting have in common.
typedef struct {
	uint64_t session, uid;
	int write;
	const char *tag; // owned by its Python string; NULL: none
	Py_ssize_t ntag;
} posting;

static int post_to(const posting *p, const entries *e, int may_wait, mori_status_ref *ref) {
	return moriPost(p->session, p->write, e->lo.v, e->ro.v, e->sz.v, e->lo.n, e->ro.n, e->sz.n, e->one, e->size, p->uid, (char *)p->tag, p->ntag,
	                may_wait, ref);
}

static PyObject *post(const posting *p, const entries *e) {
	mori_status_ref ref;
	if (mori_status_type == NULL) {
		PyErr_SetString(PyExc_RuntimeError, "E_STATE|posting needs setup(base, codes) first");
		return NULL;
	}
	int answer = post_to(p, e, 0, &ref);
	if (answer == MORI_WOULD_WAIT) {
		Py_BEGIN_ALLOW_THREADS
		answer = post_to(p, e, 1, &ref);
		Py_END_ALLOW_THREADS
	}
	if (answer != MORI_OK) {
		mori_fail_answer(answer, "session");
		return NULL;
	}
	return (PyObject *)mori_wrap(ref);
}

// head parses session, is_write, uid and the tag, which may be left out.
static int head(PyObject *const *args, Py_ssize_t nargs, const char *usage, posting *p) {
	if (nargs != 6 && nargs != 7) {
		PyErr_Format(PyExc_TypeError, "%s, got %zd arguments", usage, nargs);
		return -1;
	}
	if (!mori_usable() || mori_to_u64(args[0], &p->session) || (p->write = PyObject_IsTrue(args[1])) < 0) {
		return -1;
	}
	p->tag = NULL;
	p->ntag = 0;
	if (nargs == 7 && (p->tag = PyUnicode_AsUTF8AndSize(args[6], &p->ntag)) == NULL) {
		return -1;
	}
	return mori_to_u64(args[5], &p->uid);
}

static PyObject *fast_post(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	posting p;
	entries e;
	if (head(args, nargs, "post(session, is_write, local_offsets, remote_offsets, sizes, uid[, tag])", &p) || mori_to_entries(args + 2, &e)) {
		return NULL;
	}
	PyObject *out = post(&p, &e);
	mori_entries_free(&e);
	return out;
}

static PyObject *fast_post_one(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	posting p;
	if (head(args, nargs, "post_one(session, is_write, local_offset, remote_offset, size, uid[, tag])", &p)) {
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
	return post(&p, &e);
}

static PyObject *fast_new_status(PyObject *self, PyObject *unused) {
	(void)self;
	(void)unused;
	return mori_usable() ? mori_new_status() : NULL;
}

static PyObject *fast_failed_status(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	uint32_t code;
	if (nargs != 2) {
		PyErr_SetString(PyExc_TypeError, "failed_status(code, message)");
		return NULL;
	}
	if (!mori_usable() || mori_parse_code(args[0], &code)) {
		return NULL;
	}
	PyObject *s = mori_new_status();
	if (s && mori_update(((Status *)s)->id, MORI_UPDATE, code, args[1])) {
		Py_CLEAR(s);
	}
	return s;
}

static PyObject *fast_alloc_uid(PyObject *self, PyObject *engine) {
	(void)self;
	uint64_t id, uid;
	if (!mori_usable() || mori_to_u64(engine, &id)) {
		return NULL;
	}
	int answer = moriAllocUID(id, &uid);
	if (answer != MORI_OK) {
		mori_fail_answer(answer, "engine");
		return NULL;
	}
	return PyLong_FromUnsignedLongLong(uid);
}

static PyObject *fast_pop_inbound(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	uint64_t id, uid;
	Py_ssize_t n;
	if (nargs != 3) {
		PyErr_SetString(PyExc_TypeError, "pop_inbound(engine, remote_key, uid)");
		return NULL;
	}
	if (!mori_usable() || mori_to_u64(args[0], &id) || mori_to_u64(args[2], &uid)) {
		return NULL;
	}
	const char *key = PyUnicode_AsUTF8AndSize(args[1], &n);
	if (key == NULL) {
		return NULL;
	}
	int answer;
	Py_BEGIN_ALLOW_THREADS
	answer = moriPopInbound(id, (char *)key, n, uid);
	Py_END_ALLOW_THREADS
	if (answer < 0) {
		mori_fail_answer(answer, "engine");
		return NULL;
	}
	return PyBool_FromLong(answer);
}

static PyObject *fast_setup(PyObject *self, PyObject *args) {
	(void)self;
	PyObject *base, *dict;
	if (!mori_usable() || !PyArg_ParseTuple(args, "O!O!:setup", &PyType_Type, &base, &PyDict_Type, &dict)) {
		return NULL;
	}
	if (mori_status_type == NULL && mori_make_status_type(base, dict)) {
		return NULL;
	}
	return Py_NewRef((PyObject *)mori_status_type);
}

static PyMethodDef fast_methods[] = {
	{"setup", fast_setup, METH_VARARGS, "setup(base, codes): make the status type, a subclass of base."},
	{"new_status", fast_new_status, METH_NOARGS, "new_status(): a status in state INIT."},
	{"failed_status", KEYWORDS(fast_failed_status), METH_FASTCALL, "failed_status(code, message): a status that has failed."},
	{"post", KEYWORDS(fast_post), METH_FASTCALL, "post(session, is_write, local_offsets, remote_offsets, sizes, uid[, tag]): submit a batch."},
	{"post_one", KEYWORDS(fast_post_one), METH_FASTCALL, "post_one(session, is_write, local_offset, remote_offset, size, uid[, tag]): submit one entry."},
	{"post_after", KEYWORDS(mori_post_after), METH_FASTCALL, "post_after(session, is_write, local_offsets, remote_offsets, sizes, uid, on_stream, handle, gpu[, tag]): submit a batch that waits for a GPU."},
	{"wait_all", KEYWORDS(mori_wait_all), METH_FASTCALL, "wait_all(statuses, timeout_ms): the code of all."},
	{"alloc_uid", fast_alloc_uid, METH_O, "alloc_uid(engine): the next transfer uid."},
	{"pop_inbound", KEYWORDS(fast_pop_inbound), METH_FASTCALL, "pop_inbound(engine, remote_key, uid): whether it has arrived."},
	{NULL, NULL, 0, NULL},
};

static int add_methods(PyObject *module, PyObject *name, PyMethodDef *m) {
	int bad = 0;
	for (; !bad && m->ml_name; m++) {
		PyObject *f = PyCFunction_NewEx(m, NULL, name);
		bad = f == NULL || PyObject_SetAttrString(module, m->ml_name, f);
		Py_XDECREF(f);
	}
	return bad;
}

static int install(const char *name) {
	PyObject *module = PyImport_AddModule(name); // borrowed
	PyObject *text = module ? PyUnicode_FromString(name) : NULL;
	int bad = text == NULL || add_methods(module, text, fast_methods) || add_methods(module, text, mori_shmem_methods) ||
	          add_methods(module, text, mori_ep_methods);
	Py_XDECREF(text);
	return bad ? -1 : 0;
}

int mori_install_fast(const char *name) {
	static int hooked;
	PyGILState_STATE gil = PyGILState_Ensure();
	int bad = install(name);
	if (!bad && !hooked) {
		bad = pthread_atfork(NULL, NULL, mark_forked) ? -1 : 0;
		hooked = !bad;
	}
	if (PyErr_Occurred()) {
		PyErr_Print();
	}
	PyGILState_Release(gil);
	return bad;
}
