// SPDX-License-Identifier: MIT

// The hot functions of mori.shmem that wait for other PEs: waits and tests, signals, collectives of
// teams.

#include "_cgo_export.h"

#include "fast_shmem_wait.h"

int mori_signal(PyObject *o, operand *x, element *t) {
	*t = (element){8, 8};
	if (mori_operand(o, 0, "sig_addr", x) || mori_room(x, 1, 1, *t)) {
		return -1;
	}
	if (x->type.size != 0 && x->type.size != 8) {
		return mori_refuse("sig_addr has elements of %d bytes, a signal has 8", x->type.size);
	}
	return 0;
}

PyObject *mori_shmem_signal_fetch(PyObject *self, PyObject *o) {
	(void)self;
	operand sig = {0};
	element t;
	mori_reply reply = {0};
	int bad = !mori_usable() || mori_signal(o, &sig, &t) || mori_finish(moriShmemSignalFetch(sig.addr, &reply), &reply);
	mori_operand_release(&sig);
	return bad ? NULL : PyLong_FromUnsignedLongLong(reply.value);
}

PyObject *mori_shmem_signal_wait_until(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	operand sig = {0};
	element t;
	int64_t cmp;
	uint64_t value;
	mori_reply reply = {0};
	if (mori_usage(nargs, 3, "shmem_signal_wait_until(sig_addr, cmp, value)")) {
		return NULL;
	}
	int bad = mori_signal(args[0], &sig, &t) || mori_to_int(args[1], &cmp) || mori_to_u64(args[2], &value);
	if (!bad) {
		mori_begin_wait();
		int answer = moriShmemSignalWait(sig.addr, (int)cmp, value, &reply);
		mori_end_wait();
		bad = mori_finish(answer, &reply);
	}
	mori_operand_release(&sig);
	return bad ? NULL : PyLong_FromUnsignedLongLong(reply.value);
}

// The arrays of a wait for several elements.
typedef struct {
	uint64_t *values, *hits;
	uint8_t *skip;
	uint64_t one;
} arrays;

static int fill_values(PyObject *o, uint64_t n, element t, arrays *a) {
	PyObject *items = PySequence_Fast(o, "cmp_values must be a sequence");
	int bad = items == NULL;
	if (!bad && (uint64_t)PySequence_Fast_GET_SIZE(items) != n) {
		bad = mori_refuse("%zd cmp_values for %llu elements", PySequence_Fast_GET_SIZE(items), (unsigned long long)n);
	}
	if (!bad && (a->values = PyMem_New(uint64_t, n + 1)) == NULL) {
		PyErr_NoMemory();
		bad = -1;
	}
	// read the size each time: __index__ of an element may modify the list
	for (Py_ssize_t i = 0; !bad && (uint64_t)i < n && i < PySequence_Fast_GET_SIZE(items); i++) {
		bad = mori_pack(PySequence_Fast_GET_ITEM(items, i), t, &a->values[i]);
	}
	Py_XDECREF(items);
	return bad ? -1 : 0;
}

static int fill_skip(PyObject *o, uint64_t n, arrays *a) {
	if (o == Py_None) {
		return 0;
	}
	PyObject *items = PySequence_Fast(o, "status must be a sequence or None");
	int bad = items == NULL;
	if (!bad && (uint64_t)PySequence_Fast_GET_SIZE(items) < n) {
		bad = mori_refuse("status has %zd elements for %llu", PySequence_Fast_GET_SIZE(items), (unsigned long long)n);
	}
	if (!bad && (a->skip = PyMem_Calloc(n + 1, 1)) == NULL) {
		PyErr_NoMemory();
		bad = -1;
	}
	for (Py_ssize_t i = 0; !bad && (uint64_t)i < n && i < PySequence_Fast_GET_SIZE(items); i++) {
		int v = PyObject_IsTrue(PySequence_Fast_GET_ITEM(items, i));
		bad = v < 0;
		a->skip[i] = v == 1;
	}
	Py_XDECREF(items);
	return bad ? -1 : 0;
}

// outcome returns the Python result: a boolean for ONE and ALL, an index or None for ANY, a list of
// indices for SOME.
static PyObject *outcome(int how, uint64_t value, const arrays *a) {
	switch (how & MORI_WAIT_WHICH) {
	case MORI_WAIT_ANY:
		return value == UINT64_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(value);
	case MORI_WAIT_SOME:
		break;
	default:
		return PyBool_FromLong(value != 0);
	}
	PyObject *out = PyList_New((Py_ssize_t)value);
	for (uint64_t i = 0; out && i < value; i++) {
		PyObject *index = PyLong_FromUnsignedLongLong(a->hits[i]);
		if (index == NULL) {
			Py_CLEAR(out);
			break;
		}
		PyList_SET_ITEM(out, (Py_ssize_t)i, index);
	}
	return out;
}

static int wait_for(int how, mori_wait *w, mori_reply *reply) {
	int answer = moriShmemWait(how | MORI_TEST, w, reply);
	if (answer == MORI_WOULD_WAIT && !(how & MORI_TEST)) {
		mori_begin_wait();
		answer = moriShmemWait(how, w, reply);
		mori_end_wait();
	}
	if (answer == MORI_WOULD_WAIT) { // a test whose condition is false
		reply->value = (how & MORI_WAIT_WHICH) == MORI_WAIT_ANY ? UINT64_MAX : 0;
		answer = MORI_OK;
	}
	return mori_finish(answer, reply);
}

PyObject *mori_shmem_wait(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	operand ivars = {0};
	element t;
	int64_t how, cmp;
	arrays a = {0};
	mori_wait w = {0};
	mori_reply reply = {0};
	if (mori_usage(nargs, 7, "shmem_wait(how, ivars, nelems, status, cmp, values, dtype)") || mori_to_int(args[0], &how)) {
		return NULL;
	}
	int bad = mori_word(args[1], args[6], "ivars", &ivars, &t) || mori_to_u64(args[2], &w.nelems) || mori_to_int(args[4], &cmp) ||
	          mori_room(&ivars, w.nelems, 1, t) || fill_skip(args[3], w.nelems, &a);
	if (!bad && how & MORI_VECTOR) {
		bad = fill_values(args[5], w.nelems, t, &a);
	} else if (!bad) {
		bad = mori_pack(args[5], t, &a.one);
	}
	if (!bad && (how & MORI_WAIT_WHICH) == MORI_WAIT_SOME && (a.hits = PyMem_New(uint64_t, w.nelems + 1)) == NULL) {
		PyErr_NoMemory();
		bad = -1;
	}
	PyObject *out = NULL;
	if (!bad) {
		w.addr = ivars.addr;
		w.skip = a.skip;
		w.values = a.values ? a.values : &a.one;
		w.hits = a.hits;
		w.type = t.number;
		w.cmp = (int)cmp;
		out = wait_for((int)how, &w, &reply) ? NULL : outcome((int)how, reply.value, &a);
	}
	mori_operand_release(&ivars);
	PyMem_Free(a.values);
	PyMem_Free(a.skip);
	PyMem_Free(a.hits);
	return out;
}

// extent checks both operands of a collective. Each member contributes n elements, stride apart.
static int extent(const operand *dest, const operand *source, int kind, const mori_collective *c, element t, uint64_t members) {
	uint64_t in = c->n, out = c->n;
	if (kind == MORI_ALLTOALL || kind == MORI_ALLTOALLS) {
		in *= members;
	}
	if (kind == MORI_ALLTOALL || kind == MORI_ALLTOALLS || kind == MORI_FCOLLECT) {
		out *= members;
	}
	if (c->n > UINT64_MAX / members) {
		return mori_refuse("%llu elements for each of %llu PEs", (unsigned long long)c->n, (unsigned long long)members);
	}
	return mori_room(source, in, c->source_stride, t) || mori_room(dest, out, c->dest_stride, t) ? -1 : 0;
}

// shmem_team(kind, team, dest, source, nelems, dtype, a, b): a is the root or the op; a and b can
// be the strides.
PyObject *mori_shmem_team(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
	(void)self;
	operand dest = {0}, source = {0};
	element t = {0, 1};
	int64_t kind, a, b;
	uint64_t team;
	mori_reply reply = {0};
	mori_collective c = {.dest_stride = 1, .source_stride = 1};
	if (mori_usage(nargs, 8, "shmem_team(kind, team, dest, source, nelems, dtype, a, b)") || mori_to_int(args[0], &kind) ||
	    mori_to_u64(args[1], &team) || mori_to_int(args[6], &a) || mori_to_int(args[7], &b)) {
		return NULL;
	}
	int bad = 0;
	if (kind >= MORI_BROADCAST) {
		bad = mori_operand(args[2], 1, "dest", &dest) || mori_operand(args[3], 0, "source", &source) ||
		      mori_agree(args[5], &dest, &source, &t) || mori_to_u64(args[4], &c.n) ||
		      mori_finish(moriShmemTeamSize(team, &reply), &reply);
		if (kind == MORI_ALLTOALLS) {
			c.dest_stride = a;
			c.source_stride = b;
		}
		bad = bad || extent(&dest, &source, (int)kind, &c, t, reply.value);
	}
	if (!bad && kind == MORI_BARRIER) {
		bad = mori_order(MORI_QUIET); // the barrier implies quiet, but only mori_order releases in_flight
	}
	if (!bad) {
		c.dest = dest.addr;
		c.source = source.addr;
		c.root = a;
		c.op = (int)a;
		c.type = t.number;
		c.size = t.size;
		if (kind != MORI_ALLTOALLS && kind != MORI_REDUCE) {
			c.n *= (uint64_t)t.size;
		}
		mori_begin_wait();
		int answer = moriShmemTeam((int)kind, team, &c, &reply);
		mori_end_wait();
		bad = mori_finish(answer, &reply);
	}
	mori_operand_release(&dest);
	mori_operand_release(&source);
	return bad ? NULL : Py_NewRef(Py_None);
}
