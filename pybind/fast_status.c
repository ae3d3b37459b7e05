// SPDX-License-Identifier: MIT

// TransferStatus in C: polling reads one word and does not enter Go.

#include "_cgo_export.h"

#include "fast_py.h"

PyTypeObject *mori_status_type;
static PyObject *status_codes; // tuple: number -> member, None for a number without a member

Status *mori_wrap(mori_status_ref ref) {
	Status *s = (Status *)mori_status_type->tp_alloc(mori_status_type, 0);
	if (s == NULL) {
		moriStatusRelease(ref.id);
		return NULL;
	}
	s->id = ref.id;
	s->word = (_Atomic uint32_t *)(uintptr_t)ref.word;
	return s;
}

static void status_dealloc(PyObject *self) {
	PyTypeObject *type = Py_TYPE(self);
	if (!mori_forked) {
		moriStatusRelease(((Status *)self)->id);
	}
	type->tp_free(self);
	Py_DECREF(type);
}

static inline uint32_t code_of(PyObject *self) { return atomic_load(((Status *)self)->word); }

static PyObject *member(uint32_t code) {
	PyObject *m = code < CODE_LIMIT ? PyTuple_GET_ITEM(status_codes, code) : Py_None;
	if (m == Py_None) {
		PyErr_Format(PyExc_ValueError, "status code %u is unknown", code);
		return NULL;
	}
	return Py_NewRef(m);
}

static PyObject *status_code(PyObject *self, PyObject *unused) {
	(void)unused;
	return mori_usable() ? member(code_of(self)) : NULL;
}

#define STATUS_TEST(name, condition)                                  \
	static PyObject *name(PyObject *self, PyObject *unused) {         \
		(void)unused;                                                 \
		if (!mori_usable()) {                                              \
			return NULL;                                              \
		}                                                             \
		uint32_t code = code_of(self);                                \
		return PyBool_FromLong(condition);                            \
	}
STATUS_TEST(status_succeeded, code == CODE_SUCCESS)
STATUS_TEST(status_failed, code > CODE_ERR)
STATUS_TEST(status_init, code == CODE_INIT)
STATUS_TEST(status_in_progress, code == CODE_IN_PROGRESS)

static PyObject *status_message(PyObject *self, PyObject *unused) {
	(void)unused;
	if (!mori_usable()) {
		return NULL;
	}
	char *text = moriStatusMessage(((Status *)self)->id);
	if (text == NULL) {
		return PyUnicode_FromString("");
	}
	PyObject *out = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
	free(text);
	return out;
}

// mori_parse_code reads a StatusCode or its number.
int mori_parse_code(PyObject *o, uint32_t *code) {
	PyObject *n = PyNumber_Index(o);
	if (n == NULL) {
		return -1;
	}
	unsigned long v = PyLong_AsUnsignedLong(n);
	Py_DECREF(n);
	if (PyErr_Occurred()) {
		return -1;
	}
	if (v >= CODE_LIMIT || PyTuple_GET_ITEM(status_codes, v) == Py_None) {
		PyErr_Format(PyExc_ValueError, "status code %lu is unknown", v);
		return -1;
	}
	*code = (uint32_t)v;
	return 0;
}

int mori_update(uint64_t id, int what, uint32_t code, PyObject *message) {
	const char *text = "";
	Py_ssize_t n = 0;
	if (message && (text = PyUnicode_AsUTF8AndSize(message, &n)) == NULL) {
		return -1;
	}
	int answer = moriStatusUpdate(id, what, code, (char *)text, n);
	return answer == MORI_OK ? 0 : mori_fail_answer(answer, "status");
}

static PyObject *status_update(PyObject *self, PyObject *args, PyObject *kwargs) {
	static char *names[] = {"code", "message", NULL};
	PyObject *code, *message;
	uint32_t v;
	if (!mori_usable() || !PyArg_ParseTupleAndKeywords(args, kwargs, "OU:Update", names, &code, &message) || mori_parse_code(code, &v) ||
	    mori_update(((Status *)self)->id, MORI_UPDATE, v, message)) {
		return NULL;
	}
	Py_RETURN_NONE;
}

static PyObject *status_set_code(PyObject *self, PyObject *code) {
	uint32_t v;
	if (!mori_usable() || mori_parse_code(code, &v) || mori_update(((Status *)self)->id, MORI_SET_CODE, v, NULL)) {
		return NULL;
	}
	Py_RETURN_NONE;
}

static PyObject *status_set_message(PyObject *self, PyObject *message) {
	if (!mori_usable() || mori_update(((Status *)self)->id, MORI_SET_MESSAGE, 0, message)) {
		return NULL;
	}
	Py_RETURN_NONE;
}

PyObject *mori_new_status(void) {
	mori_status_ref ref;
	if (mori_status_type == NULL) {
		PyErr_SetString(PyExc_RuntimeError, "E_STATE|statuses need setup(base, codes) first");
		return NULL;
	}
	int answer = moriStatusNew(&ref);
	if (answer != MORI_OK) {
		mori_fail_answer(answer, "status");
		return NULL;
	}
	return (PyObject *)mori_wrap(ref);
}

static PyObject *status_wait_for(PyObject *self, PyObject *args, PyObject *kwargs) {
	static char *names[] = {"timeout_ms", NULL};
	long long ms = -1;
	if (!mori_usable() || !PyArg_ParseTupleAndKeywords(args, kwargs, "|L:WaitFor", names, &ms) ||
	    mori_wait_for((Status *)self, ms)) {
		return NULL;
	}
	return member(code_of(self));
}

// Returns the handle, for control functions that take one.
static PyObject *status_handle(PyObject *self, PyObject *unused) {
	(void)unused;
	return mori_usable() ? PyLong_FromUnsignedLongLong(((Status *)self)->id) : NULL;
}

static PyMethodDef status_methods[] = {
	{"_handle", status_handle, METH_NOARGS, NULL},
	{"Code", status_code, METH_NOARGS, NULL},
	{"Message", status_message, METH_NOARGS, NULL},
	{"Update", KEYWORDS(status_update), METH_VARARGS | METH_KEYWORDS, NULL},
	{"Init", status_init, METH_NOARGS, NULL},
	{"InProgress", status_in_progress, METH_NOARGS, NULL},
	{"Succeeded", status_succeeded, METH_NOARGS, NULL},
	{"Failed", status_failed, METH_NOARGS, NULL},
	{"SetCode", status_set_code, METH_O, NULL},
	{"SetMessage", status_set_message, METH_O, NULL},
	{"Wait", mori_status_wait, METH_NOARGS, NULL},
	{"WaitFor", KEYWORDS(status_wait_for), METH_VARARGS | METH_KEYWORDS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot status_slots[] = {{Py_tp_dealloc, status_dealloc}, {Py_tp_methods, status_methods}, {0, NULL}};
static PyType_Spec status_spec = {"mori._native._fast.Status", sizeof(Status), 0, Py_TPFLAGS_DEFAULT, status_slots};

// make_codes turns {number: member} into a tuple indexed by number.
static PyObject *make_codes(PyObject *dict) {
	PyObject *out = PyTuple_New(CODE_LIMIT);
	for (long i = 0; out && i < CODE_LIMIT; i++) {
		PyObject *n = PyLong_FromLong(i);
		PyObject *m = n ? PyDict_GetItemWithError(dict, n) : NULL;
		Py_XDECREF(n);
		if (PyErr_Occurred()) {
			Py_CLEAR(out);
			break;
		}
		PyTuple_SET_ITEM(out, i, Py_NewRef(m ? m : Py_None));
	}
	return out;
}

int mori_make_status_type(PyObject *base, PyObject *dict) {
	PyObject *codes = make_codes(dict);
	PyObject *bases = codes ? PyTuple_Pack(1, base) : NULL;
	PyObject *type = bases ? PyType_FromSpecWithBases(&status_spec, bases) : NULL;
	Py_XDECREF(bases);
	if (type == NULL) {
		Py_XDECREF(codes);
		return -1;
	}
	status_codes = codes;
	mori_status_type = (PyTypeObject *)type;
	return 0;
}
