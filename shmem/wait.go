// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"

	"mori/core/fabric"
)

// A Type is the type of the elements that a call works on.
type Type = fabric.DataType

// A Cmp is how an element of memory, on the left, compares with a value.
type Cmp int

// The comparisons, in OpenSHMEM's order.
const (
	CmpEQ Cmp = 1 + iota
	CmpNE
	CmpGT
	CmpGE
	CmpLT
	CmpLE
)

var cmpText = [...]string{CmpEQ: "==", CmpNE: "!=", CmpGT: ">", CmpGE: ">=", CmpLT: "<", CmpLE: "<="}

// String is the operator.
func (c Cmp) String() string {
	if c < CmpEQ || c > CmpLE {
		return fmt.Sprintf("comparison %d", int(c))
	}
	return cmpText[c]
}

// The calls of this file look at elements of this PE's symmetric memory, of an integer type, that other PEs change by puts, atomics and
// signals. Values are taken as that type: of 4 bytes, the lower half of a value. Who has seen a change also sees what its PE put before
// and ordered by Fence.
//
// Of several elements, those whose status is true are left out; a nil status leaves out none. The Vector forms compare each element with a
// value of its own.

// WaitUntil waits until the element at addr compares so with value.
func (w *World) WaitUntil(addr uint64, t Type, cmp Cmp, value uint64) error {
	c, err := w.condition(addr, 1, t, cmp)
	if err == nil {
		c.value = value
		err = w.awaitCondition(&c, c.holds)
	}
	return waitError("wait_until", err)
}

// Test reports whether it does now.
func (w *World) Test(addr uint64, t Type, cmp Cmp, value uint64) (bool, error) {
	c, err := w.condition(addr, 1, t, cmp)
	if err != nil {
		return false, waitError("test", err)
	}
	c.value = value
	if err := c.refresh(); err != nil {
		return false, waitError("test", err)
	}
	return c.holds(), nil
}

// WaitUntilAll waits until each of the elements has compared so; one that has is not looked at again.
func (w *World) WaitUntilAll(addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64) error {
	return w.waitAll("wait_until_all", addr, nelems, status, t, cmp, value, nil)
}

// WaitUntilAllVector is WaitUntilAll with a value for each element.
func (w *World) WaitUntilAllVector(addr, nelems uint64, status []bool, t Type, cmp Cmp, values []uint64) error {
	return w.waitAll("wait_until_all_vector", addr, nelems, status, t, cmp, 0, vector(values))
}

// WaitUntilAny waits until one of the elements compares so and returns its index; -1 if all are left out.
func (w *World) WaitUntilAny(addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64) (int, error) {
	return w.waitAny("wait_until_any", addr, nelems, status, t, cmp, value, nil)
}

// WaitUntilAnyVector is WaitUntilAny with a value for each element.
func (w *World) WaitUntilAnyVector(addr, nelems uint64, status []bool, t Type, cmp Cmp, values []uint64) (int, error) {
	return w.waitAny("wait_until_any_vector", addr, nelems, status, t, cmp, 0, vector(values))
}

// WaitUntilSome waits until at least one of the elements compares so and returns the indices of all that do; none if all are left out.
func (w *World) WaitUntilSome(addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64) ([]int, error) {
	return w.waitSome("wait_until_some", addr, nelems, status, t, cmp, value, nil)
}

// WaitUntilSomeVector is WaitUntilSome with a value for each element.
func (w *World) WaitUntilSomeVector(addr, nelems uint64, status []bool, t Type, cmp Cmp, values []uint64) ([]int, error) {
	return w.waitSome("wait_until_some_vector", addr, nelems, status, t, cmp, 0, vector(values))
}

// tested is conditions for a test, which looks once.
func (w *World) tested(act string, addr, n uint64, status []bool, t Type, cmp Cmp, value uint64, values []uint64) (condition, error) {
	c, err := w.conditions(act, addr, n, status, t, cmp, value, values)
	if err == nil {
		if err = c.refresh(); err != nil {
			return condition{}, waitError(act, err)
		}
	}
	return c, err
}

// TestAll reports whether all elements compare so; also if all are left out.
func (w *World) TestAll(addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64) (bool, error) {
	c, err := w.tested("test_all", addr, nelems, status, t, cmp, value, nil)
	return err == nil && c.all(), err
}

// TestAllVector is TestAll with a value for each element.
func (w *World) TestAllVector(addr, nelems uint64, status []bool, t Type, cmp Cmp, values []uint64) (bool, error) {
	c, err := w.tested("test_all_vector", addr, nelems, status, t, cmp, 0, vector(values))
	return err == nil && c.all(), err
}

// TestAny returns the index of an element that compares so, or -1.
func (w *World) TestAny(addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64) (int, error) {
	c, err := w.tested("test_any", addr, nelems, status, t, cmp, value, nil)
	return c.which(), err
}

// TestAnyVector is TestAny with a value for each element.
func (w *World) TestAnyVector(addr, nelems uint64, status []bool, t Type, cmp Cmp, values []uint64) (int, error) {
	c, err := w.tested("test_any_vector", addr, nelems, status, t, cmp, 0, vector(values))
	return c.which(), err
}

// TestSome returns the indices of the elements that compare so.
func (w *World) TestSome(addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64) ([]int, error) {
	c, err := w.tested("test_some", addr, nelems, status, t, cmp, value, nil)
	return c.some(), err
}

// TestSomeVector is TestSome with a value for each element.
func (w *World) TestSomeVector(addr, nelems uint64, status []bool, t Type, cmp Cmp, values []uint64) ([]int, error) {
	c, err := w.tested("test_some_vector", addr, nelems, status, t, cmp, 0, vector(values))
	return c.some(), err
}

func (w *World) waitAll(act string, addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64, values []uint64) error {
	c, err := w.conditions(act, addr, nelems, status, t, cmp, value, values)
	if err != nil {
		return err
	}
	return waitError(act, w.awaitCondition(&c, c.all))
}

func (w *World) waitAny(act string, addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64, values []uint64) (int, error) {
	c, err := w.conditions(act, addr, nelems, status, t, cmp, value, values)
	if err != nil || c.idle() {
		return -1, err
	}
	if err = w.awaitCondition(&c, c.any); err != nil {
		return -1, waitError(act, err)
	}
	return int(c.found), nil
}

func (w *World) waitSome(act string, addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64, values []uint64) ([]int, error) {
	c, err := w.conditions(act, addr, nelems, status, t, cmp, value, values)
	if err != nil || c.idle() {
		return nil, err
	}
	if err = w.awaitCondition(&c, c.any); err != nil {
		return nil, waitError(act, err)
	}
	return c.rest(), nil
}

// vector is values, and never nil.
func vector(values []uint64) []uint64 {
	if values == nil {
		return []uint64{}
	}
	return values
}

func waitError(act string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", act, err)
	}
	return nil
}
