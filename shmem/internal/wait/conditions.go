// SPDX-License-Identifier: MIT

package wait

import (
	"fmt"
	"time"

	"mori/core/fabric"
	"mori/shmem/internal/heap"
)

// Conditions has the calls that wait for or test elements of this PE's symmetric memory, which
// other PEs change by puts, atomics and signals. Elements have an integer type. Of a value for a
// 4-byte type, the lower half counts. A PE that has seen a change also sees what the other PE put
// before and ordered by Fence.
//
// Calls on several elements skip those whose status is true; a nil status skips none. The Vector
// forms have a value for each element.
type Conditions struct {
	waiter *Waiter
	heap   *heap.Heap
}

// NewConditions returns the calls on the memory of h.
func NewConditions(w *Waiter, h *heap.Heap) *Conditions { return &Conditions{w, h} }

// AwaitFor is for layers that build protocols from symmetric memory. It waits until ready returns
// true, at most for timeout (0: forever). The PE that makes ready true wakes this one: by
// SignalSet, SignalAdd or an atomic. This goroutine calls ready often, so it should only load a few
// words. what names the wait in the error.
func (w *Conditions) AwaitFor(timeout time.Duration, what func() string, ready func() bool) error {
	return w.waiter.awaitOn(onHeap, timeout, what, ready)
}

// WaitUntil waits until the element at addr satisfies the comparison with value.
func (w *Conditions) WaitUntil(addr uint64, t Type, cmp Cmp, value uint64) error {
	c, err := w.condition(addr, 1, t, cmp)
	if err == nil {
		c.value = value
		err = w.waiter.awaitCondition(&c, c.holds)
	}
	return waitError("wait_until", err)
}

// Test reports whether it does now.
func (w *Conditions) Test(addr uint64, t Type, cmp Cmp, value uint64) (bool, error) {
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

// WaitUntilAll waits until each element has satisfied the comparison once.
func (w *Conditions) WaitUntilAll(addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64) error {
	return w.waitAll("wait_until_all", addr, nelems, status, t, cmp, value, nil)
}

// WaitUntilAllVector is WaitUntilAll with a value for each element.
func (w *Conditions) WaitUntilAllVector(addr, nelems uint64, status []bool, t Type, cmp Cmp, values []uint64) error {
	return w.waitAll("wait_until_all_vector", addr, nelems, status, t, cmp, 0, vector(values))
}

// WaitUntilAny waits until one element satisfies the comparison, and returns its index; -1 if all
// are skipped.
func (w *Conditions) WaitUntilAny(addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64) (int, error) {
	return w.waitAny("wait_until_any", addr, nelems, status, t, cmp, value, nil)
}

// WaitUntilAnyVector is WaitUntilAny with a value for each element.
func (w *Conditions) WaitUntilAnyVector(addr, nelems uint64, status []bool, t Type, cmp Cmp, values []uint64) (int, error) {
	return w.waitAny("wait_until_any_vector", addr, nelems, status, t, cmp, 0, vector(values))
}

// WaitUntilSome waits until at least one element satisfies the comparison, and returns the indices
// of all that do; none if all are skipped.
func (w *Conditions) WaitUntilSome(addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64) ([]int, error) {
	return w.waitSome("wait_until_some", addr, nelems, status, t, cmp, value, nil)
}

// WaitUntilSomeVector is WaitUntilSome with a value for each element.
func (w *Conditions) WaitUntilSomeVector(addr, nelems uint64, status []bool, t Type, cmp Cmp, values []uint64) ([]int, error) {
	return w.waitSome("wait_until_some_vector", addr, nelems, status, t, cmp, 0, vector(values))
}

// tested returns the condition of a test, which checks once.
func (w *Conditions) tested(act string, addr, n uint64, status []bool, t Type, cmp Cmp, value uint64, values []uint64) (condition, error) {
	c, err := w.conditions(act, addr, n, status, t, cmp, value, values)
	if err == nil {
		if err = c.refresh(); err != nil {
			return condition{}, waitError(act, err)
		}
	}
	return c, err
}

// TestAll reports whether all elements satisfy the comparison; true if all are skipped.
func (w *Conditions) TestAll(addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64) (bool, error) {
	c, err := w.tested("test_all", addr, nelems, status, t, cmp, value, nil)
	return err == nil && c.all(), err
}

// TestAllVector is TestAll with a value for each element.
func (w *Conditions) TestAllVector(addr, nelems uint64, status []bool, t Type, cmp Cmp, values []uint64) (bool, error) {
	c, err := w.tested("test_all_vector", addr, nelems, status, t, cmp, 0, vector(values))
	return err == nil && c.all(), err
}

// TestAny returns the index of an element that satisfies the comparison, or -1.
func (w *Conditions) TestAny(addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64) (int, error) {
	c, err := w.tested("test_any", addr, nelems, status, t, cmp, value, nil)
	return c.which(), err
}

// TestAnyVector is TestAny with a value for each element.
func (w *Conditions) TestAnyVector(addr, nelems uint64, status []bool, t Type, cmp Cmp, values []uint64) (int, error) {
	c, err := w.tested("test_any_vector", addr, nelems, status, t, cmp, 0, vector(values))
	return c.which(), err
}

// TestSome returns the indices of the elements that satisfy the comparison.
func (w *Conditions) TestSome(addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64) ([]int, error) {
	c, err := w.tested("test_some", addr, nelems, status, t, cmp, value, nil)
	return c.some(), err
}

// TestSomeVector is TestSome with a value for each element.
func (w *Conditions) TestSomeVector(addr, nelems uint64, status []bool, t Type, cmp Cmp, values []uint64) ([]int, error) {
	c, err := w.tested("test_some_vector", addr, nelems, status, t, cmp, 0, vector(values))
	return c.some(), err
}

func (w *Conditions) waitAll(act string, addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64, values []uint64) error {
	c, err := w.conditions(act, addr, nelems, status, t, cmp, value, values)
	if err != nil {
		return err
	}
	return waitError(act, w.waiter.awaitCondition(&c, c.all))
}

func (w *Conditions) waitAny(act string, addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64, values []uint64) (int, error) {
	c, err := w.conditions(act, addr, nelems, status, t, cmp, value, values)
	if err != nil || c.idle() {
		return -1, err
	}
	if err = w.waiter.awaitCondition(&c, c.any); err != nil {
		return -1, waitError(act, err)
	}
	return int(c.found), nil
}

func (w *Conditions) waitSome(act string, addr, nelems uint64, status []bool, t Type, cmp Cmp, value uint64, values []uint64) ([]int, error) {
	c, err := w.conditions(act, addr, nelems, status, t, cmp, value, values)
	if err != nil || c.idle() {
		return nil, err
	}
	if err = w.waiter.awaitCondition(&c, c.any); err != nil {
		return nil, waitError(act, err)
	}
	return c.rest(), nil
}

// vector returns values, never nil.
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

// SignalFetch returns the present value of this PE's signal at sig.
func (w *Conditions) SignalFetch(sig uint64) (uint64, error) {
	c, err := w.condition(sig, 1, fabric.Uint64, CmpEQ)
	if err == nil {
		err = c.refresh()
	}
	if err != nil {
		return 0, fmt.Errorf("signal_fetch at %#x: %w", sig, err)
	}
	return c.load(0), nil
}

// SignalWaitUntil waits until this PE's signal at sig satisfies the comparison with value, and
// returns its value then.
func (w *Conditions) SignalWaitUntil(sig uint64, cmp Cmp, value uint64) (uint64, error) {
	c, err := w.condition(sig, 1, fabric.Uint64, cmp)
	if err == nil {
		c.value = value
		err = w.waiter.awaitCondition(&c, c.holds)
	}
	if err != nil {
		return 0, fmt.Errorf("signal_wait_until: %w", err)
	}
	return c.seen, nil
}
