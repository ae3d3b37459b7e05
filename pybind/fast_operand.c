// SPDX-License-Identifier: MIT

// Operands of mori.shmem from Python objects: an int is an address; arrays, tensors and other
// buffers are the memory that they refer to.

#include "fast_operand.h"

#include <stdlib.h>
#include <string.h>

static PyObject *types;    // dict: dtype -> number << ELEMENT_SHIFT | size
static PyObject *resolve;  // looks up a dtype that is not in types yet
static PyObject *refusal;  // InvalidArgumentError
static PyObject *s_dtype, *s_data_ptr, *s_nbytes, *s_is_cpu, *s_is_cuda, *s_is_contiguous, *s_interface;

PyObject *mori_shmem_setup(PyObject *self, PyObject *args) {
	(void)self;
	PyObject *dict, *function, *error;
	if (!PyArg_ParseTuple(args, "O!OO:shmem_setup", &PyDict_Type, &dict, &function, &error)) {
		return NULL;
	}
	if (types == NULL) {
		s_dtype = PyUnicode_InternFromString("dtype");
		s_data_ptr = PyUnicode_InternFromString("data_ptr");
		s_nbytes = PyUnicode_InternFromString("nbytes");
		s_is_cpu = PyUnicode_InternFromString("is_cpu");
		s_is_cuda = PyUnicode_InternFromString("is_cuda");
		s_interface = PyUnicode_InternFromString("__cuda_array_interface__");
		s_is_contiguous = PyUnicode_InternFromString("is_contiguous");
		types = Py_NewRef(dict);
		resolve = Py_NewRef(function);
		refusal = Py_NewRef(error);
	}
	Py_RETURN_NONE;
}

int mori_refuse(const char *format, ...) {
	va_list args;
	va_start(args, format);
	PyErr_FormatV(refusal, format, args);
	va_end(args);
	return -1;
}

int mori_element(PyObject *dtype, element *out) {
	out->number = out->size = 0;
	if (dtype == Py_None) {
		return 0;
	}
	PyObject *code = PyDict_GetItemWithError(types, dtype); // borrowed reference
	if (code == NULL) {
		if (PyErr_Occurred() || (code = PyObject_CallOneArg(resolve, dtype)) == NULL) {
			return -1;
		}
		int bad = PyDict_SetItem(types, dtype, code);
		Py_DECREF(code); // the dict keeps a reference
		if (bad) {
			return -1;
		}
	}
	long n = PyLong_AsLong(code);
	if (n == -1 && PyErr_Occurred()) {
		return -1;
	}
	out->number = (int)(n >> ELEMENT_SHIFT);
	out->size = (int)(n & ((1 << ELEMENT_SHIFT) - 1));
	return 0;
}

// truth calls or reads a boolean of a tensor. It returns -1 on error.
static int truth(PyObject *o, PyObject *name, int call) {
	PyObject *v = call ? PyObject_CallMethodNoArgs(o, name) : PyObject_GetAttr(o, name);
	int answer = v ? PyObject_IsTrue(v) : -1;
	Py_XDECREF(v);
	return answer;
}

// from_tensor reads an object with data_ptr: a torch tensor.
static int from_tensor(PyObject *o, operand *out) {
	int here = truth(o, s_is_cpu, 0);
	if (here == 0) {
		here = truth(o, s_is_cuda, 0);
	}
	int flat = here > 0 ? truth(o, s_is_contiguous, 1) : 0;
	if (here < 0 || flat < 0) {
		return -1;
	}
	if (!here || !flat) {
		return mori_refuse("%s is a tensor that %s", out->name, here ? "is not contiguous" : "is neither in host memory nor on a GPU");
	}
	PyObject *ptr = PyObject_CallMethodNoArgs(o, s_data_ptr), *bytes = ptr ? PyObject_GetAttr(o, s_nbytes) : NULL;
	int bad = bytes == NULL || mori_to_u64(ptr, &out->addr) || mori_to_u64(bytes, &out->bytes);
	Py_XDECREF(ptr);
	Py_XDECREF(bytes);
	return bad ? -1 : 0;
}

static int from_buffer(PyObject *o, int writes, operand *out) {
	if (PyObject_GetBuffer(o, &out->view, PyBUF_C_CONTIGUOUS | (writes ? PyBUF_WRITABLE : 0))) {
		PyObject *kind, *value, *trace;
		PyErr_Fetch(&kind, &value, &trace);
		mori_refuse("%s must be contiguous%s: %S", out->name, writes ? " and writable" : "", value ? value : Py_None);
		Py_XDECREF(kind);
		Py_XDECREF(value);
		Py_XDECREF(trace);
		return -1;
	}
	out->has_view = 1;
	out->addr = (uint64_t)(uintptr_t)out->view.buf;
	out->bytes = (uint64_t)out->view.len;
	return 0;
}

// item returns the last number of a typestr: 4 for "<f4", 0 if it has no number.
static uint64_t item(PyObject *typestr) {
	const char *text = typestr && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8(typestr) : NULL;
	return text && strlen(text) > 2 ? strtoull(text + 2, NULL, 10) : 0;
}

// from_interface reads an object with __cuda_array_interface__: GPU memory.
static int from_interface(PyObject *o, operand *out) {
	PyObject *dict = PyObject_GetAttr(o, s_interface);
	if (dict == NULL) {
		return -1;
	}
	PyObject *data = NULL, *shape = NULL, *strides = NULL;
	if (PyDict_Check(dict)) { // all references borrowed
		data = PyDict_GetItemString(dict, "data");
		shape = PyDict_GetItemString(dict, "shape");
		strides = PyDict_GetItemString(dict, "strides");
	}
	int bad = -1;
	uint64_t bytes = PyDict_Check(dict) ? item(PyDict_GetItemString(dict, "typestr")) : 0;
	if (!data || !PyTuple_Check(data) || PyTuple_Size(data) < 1 || !shape || !PyTuple_Check(shape) || bytes == 0) {
		mori_refuse("%s has a __cuda_array_interface__ that makes no sense", out->name);
	} else if (strides && strides != Py_None) {
		mori_refuse("%s is an array that is not contiguous, or says so by strides", out->name);
	} else {
		bad = mori_to_u64(PyTuple_GetItem(data, 0), &out->addr);
		for (Py_ssize_t i = 0; !bad && i < PyTuple_Size(shape); i++) {
			uint64_t extent = 0;
			bad = mori_to_u64(PyTuple_GetItem(shape, i), &extent);
			bytes *= extent;
		}
		out->bytes = bytes;
	}
	Py_DECREF(dict);
	return bad ? -1 : 0;
}

int mori_operand(PyObject *o, int writes, const char *name, operand *out) {
	*out = (operand){.bytes = UINT64_MAX, .name = name};
	if (PyLong_Check(o)) {
		return mori_to_u64(o, &out->addr);
	}
	out->owner = o;
	PyObject *dtype = PyObject_GetAttr(o, s_dtype);
	if (dtype == NULL) {
		if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
			return -1;
		}
		PyErr_Clear();
	}
	int bad = dtype ? mori_element(dtype, &out->type) : 0;
	Py_XDECREF(dtype);
	if (bad) {
		return -1;
	}
	if (PyObject_CheckBuffer(o)) {
		return from_buffer(o, writes, out);
	}
	if (dtype && PyObject_HasAttr(o, s_data_ptr)) {
		return from_tensor(o, out);
	}
	if (PyObject_HasAttr(o, s_interface)) {
		return from_interface(o, out);
	}
	PyErr_Format(PyExc_TypeError, "%s is %.100s, want an int (an address), an array, a tensor or another buffer", name,
	             Py_TYPE(o)->tp_name);
	return -1;
}

void mori_operand_release(operand *x) {
	if (x->has_view) {
		PyBuffer_Release(&x->view);
		x->has_view = 0;
	}
}

int mori_agree(PyObject *dtype, const operand *a, const operand *b, element *out) {
	if (mori_element(dtype, out)) {
		return -1;
	}
	const operand *all[] = {a, b};
	const char *whose = "dtype";
	for (int i = 0; i < 2; i++) {
		const operand *x = all[i];
		if (x == NULL || x->type.size == 0) {
			continue;
		}
		if (out->size == 0) {
			*out = x->type;
			whose = x->name;
		} else if (out->size != x->type.size || out->number != x->type.number) {
			return mori_refuse("%s and %s differ in element type", whose, x->name);
		}
	}
	if (out->size == 0) {
		return mori_refuse("an address alone does not tell the element type: give dtype");
	}
	return 0;
}

int mori_room(const operand *x, uint64_t n, int64_t stride, element t) {
	if (n == 0) {
		return 0;
	}
	unsigned __int128 last = (unsigned __int128)(n - 1) * (uint64_t)(stride < 0 ? -stride : stride);
	if ((last + 1) * (unsigned)t.size > x->bytes || (last + 1) * (unsigned)t.size >> 63) {
		if (x->bytes == UINT64_MAX) {
			return mori_refuse("%llu elements of %d bytes exceed the address space", (unsigned long long)n, t.size);
		}
		return mori_refuse("%llu elements of %d bytes, %lld apart, do not fit into %s of %llu bytes", (unsigned long long)n, t.size,
		                   (long long)stride, x->name, (unsigned long long)x->bytes);
	}
	return 0;
}

static int pack_float(PyObject *value, element t, uint64_t *bits) {
	double d = PyFloat_AsDouble(value);
	if (d == -1 && PyErr_Occurred()) {
		return -1;
	}
	float f = (float)d;
	*bits = 0;
	if (t.size == 8) {
		memcpy(bits, &d, 8);
	} else {
		memcpy(bits, &f, 4);
	}
	return 0;
}

int mori_pack(PyObject *value, element t, uint64_t *bits) {
	if (t.number == 0 || t.number > LAST_FLOAT) {
		return mori_refuse("elements of this dtype are moved whole, by shmem_put and shmem_get; there is no number for them here");
	}
	if (element_is_float(t)) {
		return pack_float(value, t, bits);
	}
	PyObject *n = PyNumber_Index(value);
	if (n == NULL) {
		return -1;
	}
	int width = 8 * t.size, is_signed = element_is_signed(t), bad;
	if (is_signed) {
		int over;
		long long v = PyLong_AsLongLongAndOverflow(n, &over);
		bad = over || (width < 64 && (v < -(1LL << (width - 1)) || v >= 1LL << (width - 1)));
		*bits = (uint64_t)v;
	} else {
		unsigned long long v = PyLong_AsUnsignedLongLong(n);
		bad = PyErr_Occurred() != NULL || (width < 64 && v >> width);
		PyErr_Clear();
		*bits = v;
	}
	if (bad) {
		mori_refuse("%R does not fit into %sint%d", n, is_signed ? "" : "u", width);
	} else if (width < 64) {
		*bits &= (1ULL << width) - 1;
	}
	Py_DECREF(n);
	return bad ? -1 : 0;
}

PyObject *mori_unpack(uint64_t bits, element t) {
	if (element_is_float(t)) {
		double d;
		float f;
		memcpy(&d, &bits, 8);
		memcpy(&f, &bits, 4);
		return PyFloat_FromDouble(t.size == 8 ? d : (double)f);
	}
	int spare = 64 - 8 * t.size;
	if (element_is_signed(t)) {
		return PyLong_FromLongLong((int64_t)(bits << spare) >> spare);
	}
	return PyLong_FromUnsignedLongLong(bits << spare >> spare);
}
