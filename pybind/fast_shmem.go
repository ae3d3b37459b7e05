// SPDX-License-Identifier: MIT

package pybind

// #include "fast_shmem.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"mori/core/fabric"
	"mori/shmem"
)

// errInterrupted ends a wait because a Python signal handler raised an exception, which C then
// returns.
var errInterrupted = errors.New("interrupted")

// askPython runs pending signal handlers of the waiting Python thread.
func askPython() error {
	if C.mori_ask_python() != 0 {
		return errInterrupted
	}
	return nil
}

// answerOf passes the result of a call to C.
func answerOf(value uint64, err error, out *C.mori_reply) C.int {
	if err == nil {
		out.value = C.uint64_t(value)
		return C.MORI_OK
	}
	guard(&err)
	out.error = C.CString(err.Error())
	return C.MORI_FAILED
}

// far reports whether a call to a PE may block, because its memory is not mapped here.
func (p *pe) far(target C.int64_t) bool {
	return target >= 0 && int(target) < len(p.mapped) && !p.mapped[target]
}

// number narrows a number from Python. One that does not fit becomes an invalid PE.
func number(n C.int64_t) int {
	if n < 0 || n > math.MaxInt32 {
		return -1
	}
	return int(n)
}

//export moriShmemMove
func moriShmemMove(kind C.int, dest, source, n C.uint64_t, target C.int64_t, mayWait C.int, out *C.mori_reply) (answer C.int) {
	defer rescue(&answer)
	p, err := enter()
	if err != nil {
		return answerOf(0, err, out)
	}
	defer p.leave()
	far := p.far(target)
	if far && mayWait == 0 {
		return C.MORI_WOULD_WAIT
	}
	act, d, s, pending := p.Put, uint64(dest), uint64(source), uint64(0)
	switch kind {
	case C.MORI_GET:
		act = p.Get
	case C.MORI_PUT_NBI:
		act = p.PutNbi
	case C.MORI_GET_NBI:
		act = p.GetNbi
	}
	if far && (kind == C.MORI_PUT_NBI || kind == C.MORI_GET_NBI) {
		pending = 1
	}
	return answerOf(pending, act(d, s, uint64(n), number(target)), out)
}

//export moriShmemStrided
func moriShmemStrided(kind C.int, dest, source C.uint64_t, dst, sst C.int64_t, n, size C.uint64_t, target C.int64_t, out *C.mori_reply) (answer C.int) {
	defer rescue(&answer)
	p, err := enter()
	if err != nil {
		return answerOf(0, err, out)
	}
	defer p.leave()
	act := p.IPut
	if kind == C.MORI_GET {
		act = p.IGet
	}
	return answerOf(0, act(uint64(dest), uint64(source), int64(dst), int64(sst), uint64(n), uint64(size), number(target)), out)
}

//export moriShmemPutSignal
func moriShmemPutSignal(kind C.int, dest, source, n, sig, value C.uint64_t, op C.int, target C.int64_t, mayWait C.int, out *C.mori_reply) (answer C.int) {
	defer rescue(&answer)
	p, err := enter()
	if err != nil {
		return answerOf(0, err, out)
	}
	defer p.leave()
	far := p.far(target)
	if far && mayWait == 0 {
		return C.MORI_WOULD_WAIT
	}
	act, pending := p.PutSignal, uint64(0)
	if kind == C.MORI_PUT_NBI {
		act = p.PutSignalNbi
		if far {
			pending = 1
		}
	}
	return answerOf(pending, act(uint64(dest), uint64(source), uint64(n), uint64(sig), uint64(value), shmem.SignalOp(op), number(target)), out)
}

//export moriShmemAtomic
func moriShmemAtomic(op, size C.int, dest, value, compare C.uint64_t, target C.int64_t, mayWait C.int, out *C.mori_reply) (answer C.int) {
	defer rescue(&answer)
	p, err := enter()
	if err != nil {
		return answerOf(0, err, out)
	}
	defer p.leave()
	if mayWait == 0 && p.far(target) {
		return C.MORI_WOULD_WAIT
	}
	if what := shmem.AtomicOp(op); what < shmem.AtomicFetch {
		return answerOf(0, p.Atomic(what, int(size), uint64(dest), uint64(value), number(target)), out)
	}
	old, err := p.FetchAtomic(shmem.AtomicOp(op), int(size), uint64(dest), uint64(value), uint64(compare), number(target))
	return answerOf(old, err, out)
}

//export moriShmemOrder
func moriShmemOrder(kind, mayWait C.int, out *C.mori_reply) (answer C.int) {
	defer rescue(&answer)
	p, err := enter()
	if err != nil {
		return answerOf(0, err, out)
	}
	defer p.leave()
	if mayWait == 0 && (p.anyFar || kind == C.MORI_BARRIER_ALL || kind == C.MORI_SYNC_ALL) {
		return C.MORI_WOULD_WAIT
	}
	switch kind {
	case C.MORI_FENCE:
		err = p.Fence()
	case C.MORI_QUIET:
		err = p.Quiet()
	case C.MORI_BARRIER_ALL:
		err = p.BarrierAll()
	default:
		err = p.SyncAll()
	}
	return answerOf(0, err, out)
}

//export moriShmemSignalFetch
func moriShmemSignalFetch(sig C.uint64_t, out *C.mori_reply) (answer C.int) {
	defer rescue(&answer)
	p, err := enter()
	if err != nil {
		return answerOf(0, err, out)
	}
	defer p.leave()
	v, err := p.SignalFetch(uint64(sig))
	return answerOf(v, err, out)
}

//export moriShmemSignalWait
func moriShmemSignalWait(sig C.uint64_t, cmp C.int, value C.uint64_t, out *C.mori_reply) (answer C.int) {
	defer rescue(&answer)
	p, err := enter()
	if err != nil {
		return answerOf(0, err, out)
	}
	defer p.leave()
	v, err := p.SignalWaitUntil(uint64(sig), shmem.Cmp(cmp), uint64(value))
	return answerOf(v, err, out)
}

//export moriShmemWait
func moriShmemWait(how C.int, x *C.mori_wait, out *C.mori_reply) (answer C.int) {
	defer rescue(&answer)
	p, err := enter()
	if err != nil {
		return answerOf(0, err, out)
	}
	defer p.leave()
	q := question{pe: p, addr: uint64(x.addr), n: uint64(x.nelems), t: fabric.DataType(x._type), cmp: shmem.Cmp(x.cmp), test: how&C.MORI_TEST != 0}
	if x.skip != nil {
		q.status = unsafe.Slice((*bool)(unsafe.Pointer(x.skip)), int(x.nelems)) // C writes 0 or 1 into each
	}
	if how&C.MORI_VECTOR != 0 {
		q.vector, q.values = true, words(x.values, C.int64_t(x.nelems))
	} else {
		q.value = uint64(*x.values)
	}
	met, value := false, uint64(1)
	switch how & C.MORI_WAIT_WHICH {
	case C.MORI_WAIT_ONE:
		met, err = q.one()
	case C.MORI_WAIT_ALL:
		met, err = q.all()
	case C.MORI_WAIT_ANY:
		var at int
		at, err = q.any()
		met, value = at >= 0, uint64(int64(at))
	case C.MORI_WAIT_SOME:
		var at []int
		at, err = q.some()
		met, value = len(at) > 0, uint64(len(at))
		for i, hit := range at {
			words(x.hits, C.int64_t(x.nelems))[i] = uint64(hit)
		}
	}
	if err == nil && !met && q.test {
		return C.MORI_WOULD_WAIT
	}
	return answerOf(value, err, out)
}

// moriShmemTeamSize returns the number of members of a team.
//
//export moriShmemTeamSize
func moriShmemTeamSize(id C.uint64_t, out *C.mori_reply) (answer C.int) {
	defer rescue(&answer)
	t, err := team(uint64(id))
	if err != nil {
		return answerOf(0, err, out)
	}
	return answerOf(uint64(t.NPEs()), nil, out)
}

//export moriShmemTeam
func moriShmemTeam(kind C.int, id C.uint64_t, c *C.mori_collective, out *C.mori_reply) (answer C.int) {
	defer rescue(&answer)
	p, err := enter()
	if err != nil {
		return answerOf(0, err, out)
	}
	defer p.leave()
	t, err := team(uint64(id))
	if err != nil {
		return answerOf(0, err, out)
	}
	dest, source, n := uint64(c.dest), uint64(c.source), uint64(c.n)
	switch kind {
	case C.MORI_SYNC:
		err = t.Sync()
	case C.MORI_BARRIER:
		err = t.Barrier()
	case C.MORI_BROADCAST:
		err = t.Broadcast(dest, source, n, number(c.root))
	case C.MORI_FCOLLECT:
		err = t.FCollect(dest, source, n)
	case C.MORI_COLLECT:
		err = t.Collect(dest, source, n)
	case C.MORI_ALLTOALL:
		err = t.AllToAll(dest, source, n)
	case C.MORI_ALLTOALLS:
		err = t.AllToAllS(dest, source, int64(c.dest_stride), int64(c.source_stride), n, uint64(c.size))
	case C.MORI_REDUCE:
		err = t.Reduce(shmem.ReduceOp(c.op), shmem.Type(c._type), dest, source, n)
	default:
		err = fmt.Errorf("collective %d: %w", kind, shmem.ErrInvalid)
	}
	return answerOf(0, err, out)
}

// A question describes the words and the condition of a wait or a test on this PE.
type question struct {
	*pe
	addr, n uint64
	status  []bool // elements to skip; nil: none
	t       shmem.Type
	cmp     shmem.Cmp
	value   uint64
	values  []uint64 // one per word, if vector is set
	vector  bool
	test    bool // return without waiting
}

func (q *question) one() (bool, error) {
	if q.test {
		return q.Test(q.addr, q.t, q.cmp, q.value)
	}
	return true, q.WaitUntil(q.addr, q.t, q.cmp, q.value)
}

func (q *question) all() (bool, error) {
	switch {
	case q.test && q.vector:
		return q.TestAllVector(q.addr, q.n, q.status, q.t, q.cmp, q.values)
	case q.test:
		return q.TestAll(q.addr, q.n, q.status, q.t, q.cmp, q.value)
	case q.vector:
		return true, q.WaitUntilAllVector(q.addr, q.n, q.status, q.t, q.cmp, q.values)
	}
	return true, q.WaitUntilAll(q.addr, q.n, q.status, q.t, q.cmp, q.value)
}

func (q *question) any() (int, error) {
	switch {
	case q.test && q.vector:
		return q.TestAnyVector(q.addr, q.n, q.status, q.t, q.cmp, q.values)
	case q.test:
		return q.TestAny(q.addr, q.n, q.status, q.t, q.cmp, q.value)
	case q.vector:
		return q.WaitUntilAnyVector(q.addr, q.n, q.status, q.t, q.cmp, q.values)
	}
	return q.WaitUntilAny(q.addr, q.n, q.status, q.t, q.cmp, q.value)
}

func (q *question) some() ([]int, error) {
	switch {
	case q.test && q.vector:
		return q.TestSomeVector(q.addr, q.n, q.status, q.t, q.cmp, q.values)
	case q.test:
		return q.TestSome(q.addr, q.n, q.status, q.t, q.cmp, q.value)
	case q.vector:
		return q.WaitUntilSomeVector(q.addr, q.n, q.status, q.t, q.cmp, q.values)
	}
	return q.WaitUntilSome(q.addr, q.n, q.status, q.t, q.cmp, q.value)
}
