// SPDX-License-Identifier: MIT

package pybind

import "mori/shmem"

// A question is what a wait or a test asks of words of this PE.
type question struct {
	*pe
	addr, n uint64
	status  []bool // which to leave out; nil: none
	t       shmem.Type
	cmp     shmem.Cmp
	value   uint64
	values  []uint64 // one for each word, if vector
	vector  bool
	test    bool // do not wait
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
