// SPDX-License-Identifier: MIT

// The hot functions of mori.shmem: transfers, atomics and ordering. They hold the GIL except for
// long copies and waits for other PEs. A wait returns to Python every 100 ms for signals.

#include <sys/syscall.h>
#include <unistd.h>

#include "_cgo_export.h"

#include "fast_operand.h"
#include "fast_shmem_wait.h"

// kLongCopy is the size in bytes from which a copy releases the GIL. Such a copy takes longer than
// reacquiring the GIL.
enum { kLongCopy = 64 << 10 };

// The Python state of this thread while it waits inside Go without the GIL.
static _Thread_local PyThreadState *waiting;

int mori_ask_python(void) {
	PyThreadState *mine = waiting;
	// Only the main thread runs signal handlers. Other threads must not touch an interpreter that
	// may be shutting down.
	if (mine == NULL || syscall(SYS_gettid) != getpid()) {
		return 0;
	}
	PyEval_RestoreThread(mine);
	int raised = PyErr_CheckSignals();
	waiting = PyEval_SaveThread(); // a handler may have waited too
	return raised;
}

void mori_begin_wait(void) { waiting = PyEval_SaveThread(); }

void mori_end_wait(void) {
	PyThreadState *mine = waiting;
	waiting = NULL;
	PyEval_RestoreThread(mine);
}

int mori_finish(int answer, mori_reply *reply) {
	char *text = answer == MORI_FAILED ? reply->error : NULL;
	if (answer == MORI_OK || PyErr_Occurred()) { // the latter: a signal handler raised
		free(text);
		return PyErr_Occurred() ? -1 : 0;
	}
	if (text == NULL) {
		return mori_fail_answer(answer, "mori.shmem");
	}
	PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
	PyObject *plain = message ? PyObject_CallOneArg(PyExc_RuntimeError, message) : NULL;
	PyObject *errors = plain ? PyImport_ImportModule("mori._errors") : NULL;
	PyObject *error = errors ? PyObject_CallMethod(errors, "from_native", "O", plain) : NULL;
	if (error) {
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	}
	Py_XDECREF(error);
	Py_XDECREF(errors);
	Py_XDECREF(plain);
	Py_XDECREF(message);
	free(text);
	return -1;
}

// Objects that non-blocking transfers to other hosts still read or write, until quiet. kMostKept
// limits them for programs that never call quiet.
static PyObject *in_flight;

enum { kMostKept = 4096 };

int mori_order(int kind) {
	mori_reply reply = {0};
	PyObject *kept = kind == MORI_FENCE || kind == MORI_SYNC_ALL ? NULL : in_flight;
	if (kept) {
		in_flight = NULL;
	}
	int answer = moriShmemOrder(kind, 0, &reply);
	if (answer == MORI_WOULD_WAIT) {
		mori_begin_wait();
		answer = moriShmemOrder(kind, 1, &reply);
		mori_end_wait();
	}
	int bad = mori_finish(answer, &reply);
	Py_XDECREF(kept);
	return bad;
}

static int keep(PyObject *owner) {
	if (owner == NULL) {
		return 0;
	}
	if (in_flight && PyList_GET_SIZE(in_flight) >= kMostKept && mori_order(MORI_QUIET)) {
		return -1;
	}
	if (in_flight == NULL && (in_flight = PyList_New(0)) == NULL) {
		return -1;
	}
	return PyList_Append(in_flight, owner);
}

int mori_usage(Py_ssize_t nargs, Py_ssize_t want, const char *usage) {
	if (nargs != want) {
		PyErr_Format(PyExc_TypeError, "%s, got %zd arguments", usage, nargs);
		return -1;
	}
	return mori_usable() ? 0 : -1;
}

int mori_to_int(PyObject *o, int64_t *out) {
	if (PyLong_CheckExact(o)) {
		*out = PyLong_AsLongLong(o);
		return *out == -1 && PyErr_Occurred() ? -1 : 0;
	}
	PyObject *n = PyNumber_Index(o);
	*out = n ? PyLong_AsLongLong(n) : -1;
	Py_XDECREF(n);
	return PyErr_Occurred() ? -1 : 0;
}

// count returns the number of elements of the call: None means all of x.
static int count(PyObject *o, const operand *x, element t, uint64_t *n) {
	if (o != Py_None) {
		return mori_to_u64(o, n);
	}
	if (x->bytes == UINT64_MAX) {
		return mori_refuse("%s is an address alone: say how many elements", x->name);
	}
	*n = x->bytes / (uint64_t)t.size;
	return 0;
}

// pair parses the operands of a transfer and determines its element type and count.
static int pair(PyObject *const *args, int kind, PyObject *nelems, PyObject *dtype, operand *dest, operand *source, element *t, uint64_t *n) {
	int get = kind == MORI_GET || kind == MORI_GET_NBI;
	*source = (operand){0};
	if (mori_operand(args[0], get, "dest", dest) || mori_operand(args[1], 0, "source", source)) {
		return -1;
	}
	if (dtype == Py_True) { // transfer bytes, whatever the element type
		*t = (element){0, 1};
	} else if (mori_agree(dtype, dest, source, t)) {
		return -1;
	}
	return count(nelems, get ? dest : source, *t, n);
}

static int move(int kind, const operand *dest, const operand *source, uint64_t n, int64_t pe) {
	mori_reply reply = {0};
	int answer = MORI_WOULD_WAIT;
	if (n <= kLongCopy) {
		answer = moriShmemMove(kind, dest->addr, source->addr, n, pe, 0, &reply);
	}
	if (answer == MORI_WOULD_WAIT) {
		mori_begin_wait();
		answer = moriShmemMove(kind, dest->addr, source->addr, n, pe, 1, &reply);
		mori_end_wait();
	}
	if (mori_finish(answer, &reply)) {
		return -1;
	}
	return reply.value ? keep(kind == MORI_GET_NBI ? dest->owner : source->owner) : 0;
}

// shmem_move(kind, dest, source, nelems, pe, dtype): dtype True means bytes.
static PyObject *shmem_move(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	operand dest = {0}, source = {0};
	element t;
	uint64_t n;
	int64_t kind, pe;
	if (mori_usage(nargs, 6, "shmem_move(kind, dest, source, nelems, pe, dtype)") || mori_to_int(args[0], &kind)) {
		return NULL;
	}
	int bad = pair(args + 1, (int)kind, args[3], args[5], &dest, &source, &t, &n) || mori_to_int(args[4], &pe) ||
	          mori_room(&dest, n, 1, t) || mori_room(&source, n, 1, t) || move((int)kind, &dest, &source, n * (uint64_t)t.size, pe);
	mori_operand_release(&dest);
	mori_operand_release(&source);
	return bad ? NULL : Py_NewRef(Py_None);
}

// shmem_strided(kind, dest, source, dst, sst, nelems, pe, dtype)
static PyObject *shmem_strided(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	operand dest = {0}, source = {0};
	element t;
	uint64_t n;
	int64_t kind, pe, dst, sst;
	mori_reply reply = {0};
	if (mori_usage(nargs, 8, "shmem_strided(kind, dest, source, dst, sst, nelems, pe, dtype)") || mori_to_int(args[0], &kind)) {
		return NULL;
	}
	int bad = pair(args + 1, (int)kind, args[5], args[7], &dest, &source, &t, &n) || mori_to_int(args[3], &dst) ||
	          mori_to_int(args[4], &sst) || mori_to_int(args[6], &pe) || mori_room(&dest, n, dst, t) || mori_room(&source, n, sst, t);
	if (!bad) {
		mori_begin_wait();
		int answer = moriShmemStrided((int)kind, dest.addr, source.addr, dst, sst, n, (uint64_t)t.size, pe, &reply);
		mori_end_wait();
		bad = mori_finish(answer, &reply);
	}
	mori_operand_release(&dest);
	mori_operand_release(&source);
	return bad ? NULL : Py_NewRef(Py_None);
}

int mori_word(PyObject *o, PyObject *dtype, const char *name, operand *x, element *t) {
	return mori_operand(o, 0, name, x) || mori_agree(dtype, x, NULL, t) || mori_room(x, 1, 1, *t) ? -1 : 0;
}

// shmem_put_signal(kind, dest, source, nelems, sig_addr, signal, sig_op, pe, dtype)
static PyObject *shmem_put_signal(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	operand dest = {0}, source = {0}, sig = {0};
	element t, word;
	uint64_t n, value;
	int64_t kind, pe, op;
	mori_reply reply = {0};
	if (mori_usage(nargs, 9, "shmem_put_signal(kind, dest, source, nelems, sig_addr, signal, sig_op, pe, dtype)") ||
	    mori_to_int(args[0], &kind)) {
		return NULL;
	}
	int bad = pair(args + 1, (int)kind, args[3], args[8], &dest, &source, &t, &n) || mori_room(&dest, n, 1, t) ||
	          mori_room(&source, n, 1, t) || mori_signal(args[4], &sig, &word) || mori_to_u64(args[5], &value) ||
	          mori_to_int(args[6], &op) || mori_to_int(args[7], &pe);
	if (!bad) {
		n *= (uint64_t)t.size;
		int answer = MORI_WOULD_WAIT;
		if (n <= kLongCopy) {
			answer = moriShmemPutSignal((int)kind, dest.addr, source.addr, n, sig.addr, value, (int)op, pe, 0, &reply);
		}
		if (answer == MORI_WOULD_WAIT) {
			mori_begin_wait();
			answer = moriShmemPutSignal((int)kind, dest.addr, source.addr, n, sig.addr, value, (int)op, pe, 1, &reply);
			mori_end_wait();
		}
		bad = mori_finish(answer, &reply) || (reply.value && keep(source.owner));
	}
	mori_operand_release(&dest);
	mori_operand_release(&source);
	mori_operand_release(&sig);
	return bad ? NULL : Py_NewRef(Py_None);
}

// shmem_p(dest, value, pe, dtype)
static PyObject *shmem_p(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	operand dest = {0};
	element t;
	uint64_t bits;
	int64_t pe;
	if (mori_usage(nargs, 4, "shmem_p(dest, value, pe, dtype)")) {
		return NULL;
	}
	int bad = mori_word(args[0], args[3], "dest", &dest, &t) || mori_pack(args[1], t, &bits) || mori_to_int(args[2], &pe);
	if (!bad) {
		operand local = {.addr = (uint64_t)(uintptr_t)&bits};
		bad = move(MORI_PUT, &dest, &local, (uint64_t)t.size, pe);
	}
	mori_operand_release(&dest);
	return bad ? NULL : Py_NewRef(Py_None);
}

// shmem_g(source, pe, dtype)
static PyObject *shmem_g(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	operand source = {0};
	element t;
	uint64_t bits = 0;
	int64_t pe;
	if (mori_usage(nargs, 3, "shmem_g(source, pe, dtype)")) {
		return NULL;
	}
	int bad = mori_word(args[0], args[2], "source", &source, &t) || mori_to_int(args[1], &pe);
	if (!bad && (t.number == 0 || t.number > LAST_FLOAT)) {
		bad = mori_pack(Py_None, t, &bits); // raises the error
	}
	if (!bad) {
		operand local = {.addr = (uint64_t)(uintptr_t)&bits};
		bad = move(MORI_GET, &local, &source, (uint64_t)t.size, pe);
	}
	mori_operand_release(&source);
	return bad ? NULL : mori_unpack(bits, t);
}

enum { ATOMIC_SET = 3, FETCH = 12, SWAP = 18, COMPARE_SWAP = 19 };

// shmem_atomic(op, dest, value, compare, pe, dtype); fetching operations return the old value.
static PyObject *shmem_atomic(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	operand dest = {0};
	element t;
	uint64_t value = 0, compare = 0;
	int64_t op, pe;
	mori_reply reply = {0};
	if (mori_usage(nargs, 6, "shmem_atomic(op, dest, value, compare, pe, dtype)") || mori_to_int(args[0], &op)) {
		return NULL;
	}
	int bad = mori_word(args[1], args[5], "dest", &dest, &t) || mori_to_int(args[4], &pe) ||
	          (args[2] != Py_None && mori_pack(args[2], t, &value)) || (args[3] != Py_None && mori_pack(args[3], t, &compare));
	if (!bad && (t.number == 0 || (element_is_float(t) && op != ATOMIC_SET && op != FETCH && op != SWAP))) {
		bad = mori_refuse("this atomic is for integers of 4 and 8 bytes; set, fetch and swap also for float32 and float64");
	}
	if (!bad) {
		int answer = moriShmemAtomic((int)op, t.size, dest.addr, value, compare, pe, 0, &reply);
		if (answer == MORI_WOULD_WAIT) {
			mori_begin_wait();
			answer = moriShmemAtomic((int)op, t.size, dest.addr, value, compare, pe, 1, &reply);
			mori_end_wait();
		}
		bad = mori_finish(answer, &reply);
	}
	mori_operand_release(&dest);
	return bad ? NULL : op < FETCH ? Py_NewRef(Py_None) : mori_unpack(reply.value, t);
}

// shmem_address(o) returns the address of an object's memory.
static PyObject *shmem_address(PyObject *self, PyObject *o) {
	(void)self;
	operand x = {0};
	int bad = !mori_usable() || mori_operand(o, 0, "the argument", &x);
	mori_operand_release(&x);
	return bad ? NULL : PyLong_FromUnsignedLongLong(x.addr);
}

// shmem_order(kind)
static PyObject *shmem_order(PyObject *self, PyObject *kind) {
	(void)self;
	int64_t what;
	if (!mori_usable() || mori_to_int(kind, &what) || mori_order((int)what)) {
		return NULL;
	}
	Py_RETURN_NONE;
}

PyMethodDef mori_shmem_methods[] = {
	{"shmem_setup", mori_shmem_setup, METH_VARARGS, "shmem_setup(types, resolve, refusal): how dtypes are known, and the class of refusals."},
	{"shmem_move", KEYWORDS(shmem_move), METH_FASTCALL, "shmem_move(kind, dest, source, nelems, pe, dtype)"},
	{"shmem_strided", KEYWORDS(shmem_strided), METH_FASTCALL, "shmem_strided(kind, dest, source, dst, sst, nelems, pe, dtype)"},
	{"shmem_put_signal", KEYWORDS(shmem_put_signal), METH_FASTCALL, "shmem_put_signal(kind, dest, source, nelems, sig_addr, signal, sig_op, pe, dtype)"},
	{"shmem_p", KEYWORDS(shmem_p), METH_FASTCALL, "shmem_p(dest, value, pe, dtype)"},
	{"shmem_g", KEYWORDS(shmem_g), METH_FASTCALL, "shmem_g(source, pe, dtype)"},
	{"shmem_atomic", KEYWORDS(shmem_atomic), METH_FASTCALL, "shmem_atomic(op, dest, value, compare, pe, dtype)"},
	{"shmem_address", shmem_address, METH_O, "shmem_address(memory): where it begins"},
	{"shmem_order", shmem_order, METH_O, "shmem_order(kind)"},
	{"shmem_wait", KEYWORDS(mori_shmem_wait), METH_FASTCALL, "shmem_wait(how, ivars, nelems, status, cmp, values, dtype)"},
	{"shmem_signal_fetch", mori_shmem_signal_fetch, METH_O, "shmem_signal_fetch(sig_addr)"},
	{"shmem_signal_wait_until", KEYWORDS(mori_shmem_signal_wait_until), METH_FASTCALL, "shmem_signal_wait_until(sig_addr, cmp, value)"},
	{"shmem_team", KEYWORDS(mori_shmem_team), METH_FASTCALL, "shmem_team(kind, team, dest, source, nelems, dtype, a, b)"},
	{NULL, NULL, 0, NULL},
};
