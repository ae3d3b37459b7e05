// SPDX-License-Identifier: MIT

// Repeated calls of mori.ops on GPU arrays. Python's checks of a call depend only on the types and
// shapes of its arrays. If these are the same as in the last call, C checks only what may differ:
// the addresses of the arrays.

#include "_cgo_export.h"

#include "fast_ep_again.h"

enum { kMost = 6 }; // maximum number of arrays in a call

// The signature of an array argument. No type: the argument was None.
typedef struct {
	PyTypeObject *type;
	PyObject *dtype, *shape;
	int plain; // a GpuTensorView, which has only attributes; else a torch tensor
} known;

// A call that Python has checked, and its result. No results: no call is kept.
typedef struct {
	PyObject *results;
	known arrays[kMost];
	mori_ep_call x;
} call;

typedef struct {
	PyObject_HEAD
	PyObject *view; // the class GpuTensorView
	uint64_t place;
	call dispatch, combine;
} Again;

static PyTypeObject *again_type;
static PyObject *s_ptr, *s_shape, *s_dtype, *s_device_id, *s_is_cuda, *s_get_device, *s_is_contiguous, *s_data_ptr;

// taken converts an attribute's value or a method's result to a number. It returns 0 if that is not
// a number or is negative. It consumes value.
static int taken(PyObject *value, uint64_t *out) {
	int bad = value == NULL || mori_to_u64(value, out);
	Py_XDECREF(value);
	return !bad;
}

static int is_true(PyObject *value) {
	int yes = value == Py_True;
	Py_XDECREF(value);
	return yes;
}

static int same(PyObject *o, PyObject *name, PyObject *want) {
	PyObject *v = PyObject_GetAttr(o, name);
	if (v == want) {
		Py_XDECREF(v);
		return 1;
	}
	Py_INCREF(want); // the comparison may run any Python code
	int equal = v != NULL && PyObject_RichCompareBool(v, want, Py_EQ) == 1;
	Py_DECREF(want);
	Py_XDECREF(v);
	return equal;
}

// lies finds the address of an array. It returns 0 if the array differs from the last call's, or
// does not meet the requirements of a call. Then a Python error may be set.
static int lies(const Again *a, const known *k, PyObject *o, uint64_t *addr) {
	uint64_t place;
	*addr = 0;
	if (k->type == NULL) {
		return o == Py_None;
	}
	if (Py_TYPE(o) != k->type || !same(o, s_dtype, k->dtype) || !same(o, s_shape, k->shape)) {
		return 0;
	}
	return k->plain ? taken(PyObject_GetAttr(o, s_device_id), &place) && place == a->place && taken(PyObject_GetAttr(o, s_ptr), addr)
	                     : is_true(PyObject_GetAttr(o, s_is_cuda)) && taken(PyObject_CallMethodNoArgs(o, s_get_device), &place) && place == a->place &&
	                           is_true(PyObject_CallMethodNoArgs(o, s_is_contiguous)) && taken(PyObject_CallMethodNoArgs(o, s_data_ptr), addr);
}

static void forget(call *c) {
	Py_CLEAR(c->results);
	for (int i = 0; i < kMost; i++) {
		Py_CLEAR(c->arrays[i].type);
		Py_CLEAR(c->arrays[i].dtype);
		Py_CLEAR(c->arrays[i].shape);
	}
}

static int learn(const Again *a, known *k, PyObject *o) {
	if (o == Py_None) {
		return 0;
	}
	k->plain = (PyObject *)Py_TYPE(o) == a->view;
	if (!k->plain && !PyObject_HasAttr(o, s_data_ptr)) {
		return -1; // of a kind that must be described anew for each call
	}
	k->dtype = PyObject_GetAttr(o, s_dtype);
	k->shape = k->dtype ? PyObject_GetAttr(o, s_shape) : NULL;
	if (k->shape == NULL) {
		return -1;
	}
	k->type = (PyTypeObject *)Py_NewRef(Py_TYPE(o));
	return 0;
}

#define KEEP "keep(combine, results, n, hidden, dtype, flags, tokens, (input, indices, weights, scales, slots, rows))"
#define CALL "call(combine, op, flags, stream, blocks, warps, tokens, (input, indices, weights, scales, slots, rows))"

// usage raises an error unless there are 8 arguments and the last is the tuple of a call's arrays.
static int usage(PyObject *const *args, Py_ssize_t nargs, const char *text) {
	if (mori_usage(nargs, 8, text)) {
		return -1;
	}
	if (!PyTuple_CheckExact(args[7]) || PyTuple_GET_SIZE(args[7]) != kMost) {
		PyErr_SetString(PyExc_TypeError, text);
		return -1;
	}
	return 0;
}

// keep stores a call that Python has checked and made, as the last one of its kind.
static PyObject *keep(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	Again *a = (Again *)self;
	if (usage(args, nargs, KEEP)) {
		return NULL;
	}
	call *c = args[0] == Py_True ? &a->combine : &a->dispatch;
	forget(c);
	c->x = (mori_ep_call){0};
	if (mori_to_int(args[2], &c->x.n) || mori_to_int(args[3], &c->x.hidden) || mori_to_int(args[4], &c->x.dtype) ||
	    mori_to_int(args[5], &c->x.flags) || mori_to_int(args[6], &c->x.route_n)) {
		return NULL;
	}
	for (int i = 0; i < kMost; i++) {
		if (learn(a, &c->arrays[i], PyTuple_GET_ITEM(args[7], i))) {
			PyErr_Clear();
			forget(c);
			Py_RETURN_NONE;
		}
	}
	c->results = Py_NewRef(args[1]);
	Py_RETURN_NONE;
}

// alike reports whether a call has the signature of c, and if so fills x. If it returns 0, a Python
// error may be set.
static int alike(const Again *a, const call *c, PyObject *const *args, mori_ep_call *x) {
	int64_t flags, tokens;
	uint64_t *addrs[kMost] = {&x->input, &x->indices, &x->weights, &x->scales, &x->slots, (uint64_t *)&x->route_rows};
	*x = c->x;
	if (mori_to_int(args[2], &flags) || mori_to_u64(args[3], &x->stream) || mori_to_int(args[4], &x->blocks) || mori_to_int(args[5], &x->warps) ||
	    mori_to_int(args[6], &tokens) || tokens != x->route_n) {
		return 0;
	}
	x->flags |= flags;
	for (int i = 0; i < kMost; i++) {
		if (!lies(a, &c->arrays[i], PyTuple_GET_ITEM(args[7], i), addrs[i])) {
			return 0;
		}
	}
	return 1;
}

// repeat makes a call that has the signature of the last one of its kind, and returns its results.
// It returns None, without doing anything, if the signature differs.
static PyObject *repeat(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	Again *a = (Again *)self;
	uint64_t id;
	mori_ep_call x;
	mori_reply reply = {0};
	if (usage(args, nargs, CALL)) {
		return NULL;
	}
	int combine = args[0] == Py_True;
	call *c = combine ? &a->combine : &a->dispatch;
	PyObject *results = Py_XNewRef(c->results); // another thread may replace the kept call meanwhile
	if (results == NULL || mori_to_u64(args[1], &id) || !alike(a, c, args, &x)) {
		PyErr_Clear(); // the full check in Python raises it again
		Py_XDECREF(results);
		Py_RETURN_NONE;
	}
	mori_begin_wait();
	int answer = combine ? moriEPCombine(id, &x, &reply) : moriEPDispatch(id, &x, &reply);
	mori_end_wait();
	if (mori_finish(answer, &reply)) {
		Py_CLEAR(results);
	}
	return results;
}

static void again_dealloc(PyObject *self) {
	Again *a = (Again *)self;
	PyTypeObject *type = Py_TYPE(self);
	forget(&a->dispatch);
	forget(&a->combine);
	Py_XDECREF(a->view);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyMethodDef again_methods[] = {
	{"keep", KEYWORDS(keep), METH_FASTCALL, KEEP},
	{"call", KEYWORDS(repeat), METH_FASTCALL, CALL},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot again_slots[] = {{Py_tp_dealloc, again_dealloc}, {Py_tp_methods, again_methods}, {0, NULL}};
static PyType_Spec again_spec = {"mori._native._fast.Again", sizeof(Again), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, again_slots};

static int make_type(void) {
	struct {
		PyObject **at;
		const char *text;
	} names[] = {{&s_ptr, "ptr"}, {&s_shape, "shape"}, {&s_dtype, "dtype"}, {&s_device_id, "device_id"}, {&s_is_cuda, "is_cuda"},
	             {&s_get_device, "get_device"}, {&s_is_contiguous, "is_contiguous"}, {&s_data_ptr, "data_ptr"}};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if ((*names[i].at = PyUnicode_InternFromString(names[i].text)) == NULL) {
			return -1;
		}
	}
	again_type = (PyTypeObject *)PyType_FromSpec(&again_spec);
	return again_type ? 0 : -1;
}

PyObject *mori_ep_again(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	uint64_t place;
	if (mori_usage(nargs, 2, "ep_again(view, place)") || mori_to_u64(args[1], &place) || (again_type == NULL && make_type())) {
		return NULL;
	}
	Again *a = (Again *)again_type->tp_alloc(again_type, 0);
	if (a) {
		a->view = Py_NewRef(args[0]);
		a->place = place;
	}
	return (PyObject *)a;
}
