// SPDX-License-Identifier: MIT

// The hot functions of the extension (METH_FASTCALL), in the same library as Go's runtime. They
// hold the GIL unless they wait.

#include <pthread.h>

#include "_cgo_export.h"

#include "fast_shmem_wait.h"

volatile int mori_forked;

static void mark_forked(void) { mori_forked = 1; }

// mori_usable raises ForkError in a forked child. The child has none of Go's threads, so a call
// would hang.
int mori_usable(void) {
	if (!mori_forked) {
		return 1;
	}
	PyObject *errors = PyImport_ImportModule("mori._errors");
	PyObject *type = errors ? PyObject_GetAttrString(errors, "ForkError") : NULL;
	Py_XDECREF(errors);
	if (type) {
		PyErr_SetString(type, "mori was started before this process was forked and cannot be used in the child; "
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
	PyObject *base, *dict, *options, *from_native;
	if (!mori_usable() || !PyArg_ParseTuple(args, "O!O!OO:setup", &PyType_Type, &base, &PyDict_Type, &dict, &options, &from_native)) {
		return NULL;
	}
	if (mori_post_setup(options, from_native) || (mori_status_type == NULL && mori_make_status_type(base, dict))) {
		return NULL;
	}
	return Py_NewRef((PyObject *)mori_status_type);
}

static PyMethodDef fast_methods[] = {
	{"setup", fast_setup, METH_VARARGS, "setup(base, codes, options, from_native): make the status type, a subclass of base."},
	{"new_status", fast_new_status, METH_NOARGS, "new_status(): a status in state INIT."},
	{"failed_status", KEYWORDS(fast_failed_status), METH_FASTCALL, "failed_status(code, message): a status that has failed."},
	{"post", KEYWORDS(mori_post), METH_FASTCALL, "post(session, is_write, local_offsets, remote_offsets, sizes, uid[, deadline_ms, tag, after]): submit a batch."},
	{"post_one", KEYWORDS(mori_post_one), METH_FASTCALL, "post_one(session, is_write, local_offset, remote_offset, size, uid[, deadline_ms, tag, after]): submit one entry."},
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
	PyObject *module = PyImport_AddModule(name); // borrowed reference
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
