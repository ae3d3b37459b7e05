// SPDX-License-Identifier: MIT

// The hot functions of mori.ops. Each waits for other ranks, so it releases the GIL and returns to
// Python every 100 ms for signals. Python has already checked shapes and element types. This file
// converts arrays to addresses.

#include "_cgo_export.h"

#include "fast_ep_again.h"

enum { kArrays = 5 };

// The arrays of one call, held until it ends.
typedef struct {
	operand all[kArrays];
	int n;
} arrays;

// take finds the address of an array; 0 for None.
static int take(arrays *held, PyObject *o, const char *name, uint64_t *addr) {
	*addr = 0;
	if (o == Py_None) {
		return 0;
	}
	operand *x = &held->all[held->n++];
	if (mori_operand(o, 0, name, x)) {
		return -1;
	}
	*addr = x->addr;
	return 0;
}

static void release(arrays *held) {
	for (int i = 0; i < held->n; i++) {
		mori_operand_release(&held->all[i]);
	}
}

// launch reads the launch parameters of a call on a GPU.
static int launch(PyObject *const *args, mori_ep_call *x) {
	return mori_to_u64(args[0], &x->stream) || mori_to_int(args[1], &x->blocks) || mori_to_int(args[2], &x->warps);
}

// ep_dispatch(op, flags, n, hidden, dtype, input, indices, weights, scales, slots, route_n,
// route_rows, stream, blocks, warps) returns the number of received rows. On a GPU the number is
// not known yet, and it returns 0.
static PyObject *ep_dispatch(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	uint64_t id;
	mori_ep_call x;
	arrays held = {.n = 0};
	mori_reply reply = {0};
	if (mori_usage(nargs, 15, "ep_dispatch(op, flags, n, hidden, dtype, input, indices, weights, scales, slots, route_n, route_rows, stream, blocks, warps)") ||
	    mori_to_u64(args[0], &id) || mori_to_int(args[1], &x.flags) || mori_to_int(args[2], &x.n) || mori_to_int(args[3], &x.hidden) ||
	    mori_to_int(args[4], &x.dtype) || mori_to_int(args[10], &x.route_n) || mori_to_int(args[11], &x.route_rows) ||
	    launch(args + 12, &x)) {
		return NULL;
	}
	int bad = take(&held, args[5], "input", &x.input) || take(&held, args[6], "indices", &x.indices) ||
	          take(&held, args[7], "weights", &x.weights) || take(&held, args[8], "scales", &x.scales) ||
	          take(&held, args[9], "routing", &x.slots);
	if (!bad) {
		mori_begin_wait();
		int answer = moriEPDispatch(id, &x, &reply);
		mori_end_wait();
		bad = mori_finish(answer, &reply);
	}
	release(&held);
	return bad ? NULL : PyLong_FromUnsignedLongLong(reply.value);
}

// ep_combine(op, flags, rows, hidden, dtype, input, weights, slots, route_n, route_rows, stream, blocks, warps)
static PyObject *ep_combine(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	uint64_t id;
	mori_ep_call x = {0};
	arrays held = {.n = 0};
	mori_reply reply = {0};
	if (mori_usage(nargs, 13, "ep_combine(op, flags, rows, hidden, dtype, input, weights, slots, route_n, route_rows, stream, blocks, warps)") ||
	    mori_to_u64(args[0], &id) || mori_to_int(args[1], &x.flags) || mori_to_int(args[2], &x.n) || mori_to_int(args[3], &x.hidden) ||
	    mori_to_int(args[4], &x.dtype) || mori_to_int(args[8], &x.route_n) || mori_to_int(args[9], &x.route_rows) ||
	    launch(args + 10, &x)) {
		return NULL;
	}
	int bad = take(&held, args[5], "input", &x.input) || take(&held, args[6], "weights", &x.weights) || take(&held, args[7], "routing", &x.slots);
	if (!bad) {
		mori_begin_wait();
		int answer = moriEPCombine(id, &x, &reply);
		mori_end_wait();
		bad = mori_finish(answer, &reply);
	}
	release(&held);
	return bad ? NULL : Py_NewRef(Py_None);
}

// ep_recv(op, combine, flags, stream) returns the number of received rows if it completed a
// dispatch.
static PyObject *ep_recv(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	uint64_t id, stream;
	int64_t combine, flags;
	mori_reply reply = {0};
	if (mori_usage(nargs, 4, "ep_recv(op, combine, flags, stream)") || mori_to_u64(args[0], &id) || mori_to_int(args[1], &combine) ||
	    mori_to_int(args[2], &flags) || mori_to_u64(args[3], &stream)) {
		return NULL;
	}
	mori_begin_wait();
	int answer = moriEPRecv(id, (int)combine, flags, stream, &reply);
	mori_end_wait();
	return mori_finish(answer, &reply) ? NULL : PyLong_FromUnsignedLongLong(reply.value);
}

PyMethodDef mori_ep_methods[] = {
	{"ep_dispatch", KEYWORDS(ep_dispatch), METH_FASTCALL,
     "ep_dispatch(op, flags, n, hidden, dtype, input, indices, weights, scales, slots, route_n, route_rows, stream, blocks, warps): how many rows came"},
	{"ep_combine", KEYWORDS(ep_combine), METH_FASTCALL, "ep_combine(op, flags, rows, hidden, dtype, input, weights, slots, route_n, route_rows, stream, blocks, warps)"},
	{"ep_recv", KEYWORDS(ep_recv), METH_FASTCALL, "ep_recv(op, combine, flags, stream): how many rows came, if a dispatch ended"},
	{"ep_again", KEYWORDS(mori_ep_again), METH_FASTCALL, "ep_again(view, place): what knows the last calls of an op on a GPU."},
	{NULL, NULL, 0, NULL},
};
