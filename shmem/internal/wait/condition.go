// SPDX-License-Identifier: MIT

package wait

import (
	"fmt"
	"math/bits"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/access"
	"mori/shmem/internal/heap"
	"mori/shmem/internal/peers"
)

// A condition compares elements of this PE's memory with values. The zero condition has no
// elements.
type condition struct {
	addr, n, size uint64
	typ           Type
	cmp           Cmp
	status        []bool   // true: skip the element; nil: skip none
	value         uint64   // one value for all elements
	values        []uint64 // one value per element, if not nil
	shift         int      // moves an element's sign bit to a word's
	flip          uint64   // maps the order of signed numbers to that of unsigned ones

	found uint64 // the element that was checked last
	seen  uint64 // its value

	words uint64        // address at which the elements can be loaded; a GPU's only after refresh
	mem   access.Memory // copies a GPU's elements to the host
	buf   []byte        // id of the element that compared
}

// condition returns a condition on n elements at addr, after it has checked them. Values are still
// missing.
func (w *Conditions) condition(addr, n uint64, t Type, cmp Cmp) (c condition, err error) {
	if cmp < CmpEQ || cmp > CmpLE {
		return c, fmt.Errorf("%v does not exist: %w", cmp, peers.ErrInvalid)
	}
	var b *heap.Block
	if err = w.waiter.pes.Check(); err == nil {
		b, err = w.checkWords(addr, n, t)
	}
	if err != nil {
		return c, err
	}
	c = condition{addr: addr, n: n, size: uint64(t.Size()), typ: t, cmp: cmp, words: addr}
	if b != nil && b.OnGPU {
		c.mem = b.Mem
	}
	c.shift = 64 - 8*t.Size()
	switch t {
	case fabric.Int8, fabric.Int16, fabric.Int32, fabric.Int64:
		c.flip = 1 << 63
	}
	return c, nil
}

// checkWords checks that n elements of an integer type are at the symmetric address addr, and
// returns their block; nil if n is 0.
func (w *Conditions) checkWords(addr, n uint64, t Type) (*heap.Block, error) {
	size := uint64(t.Size())
	if !t.Integer() {
		return nil, fmt.Errorf("elements of type %v: waits support only integers: %w", t, peers.ErrInvalid)
	}
	if addr&(size-1) != 0 {
		return nil, fmt.Errorf("%v at %#x: the address is not aligned: %w", t, addr, peers.ErrInvalid)
	}
	over, bytes := bits.Mul64(n, size)
	if over != 0 {
		return nil, fmt.Errorf("%d elements of type %v: %w", n, t, peers.ErrInvalid)
	}
	if n == 0 {
		return nil, nil
	}
	b, _, err := w.heap.Locate(addr, bytes)
	return b, err
}

// conditions returns a condition on several elements, with one value, or with one each if values is
// not nil.
func (w *Conditions) conditions(act string, addr, n uint64, status []bool, t Type, cmp Cmp, value uint64, values []uint64) (condition, error) {
	c, err := w.condition(addr, n, t, cmp)
	switch {
	case err != nil:
	case status != nil && uint64(len(status)) != n:
		err = fmt.Errorf("%d elements with the status of %d: %w", n, len(status), peers.ErrInvalid)
	case values != nil && uint64(len(values)) != n:
		err = fmt.Errorf("%d elements with values for %d: %w", n, len(values), peers.ErrInvalid)
	}
	if err != nil {
		return condition{}, waitError(act, err)
	}
	c.status, c.value, c.values = status, value, values
	return c, nil
}

// String describes the condition, for the element that was checked last.
func (c *condition) String() string {
	if c.n == 1 {
		return fmt.Sprintf("%v at %#x %v %s, its value is %s", c.typ, c.addr, c.cmp, c.text(c.target(0)), c.text(c.load(0)))
	}
	i := min(c.found, c.n-1)
	return fmt.Sprintf("%d of %v at %#x: number %d %v %s, its value is %s", c.n, c.typ, c.addr, i, c.cmp, c.text(c.target(i)), c.text(c.load(i)))
}

// text formats a value by its type.
func (c *condition) text(v uint64) string {
	v <<= c.shift
	if c.flip != 0 {
		return fmt.Sprint(int64(v) >> c.shift)
	}
	return fmt.Sprint(v >> c.shift)
}

// target returns the value to compare element i with.
func (c *condition) target(i uint64) uint64 {
	if c.values != nil {
		return c.values[i]
	}
	return c.value
}

// refresh copies the elements to where they can be loaded, if needed.
func (c *condition) refresh() (err error) {
	if c.mem != nil && c.n > 0 {
		c.words, c.buf, err = c.mem.Load(c.addr, c.n*c.size, c.buf)
	}
	return err
}

// load reads element i atomically.
func (c *condition) load(i uint64) uint64 {
	addr := c.words + i*c.size
	switch c.size {
	case 8:
		return memory.Load64(addr)
	case 4:
		return uint64(memory.Load32(addr))
	}
	word := memory.Load32(addr&^3) >> (addr & 3 * 8) // hosts are little-endian, and blocks consist of words
	return uint64(word) & (1<<(8*c.size) - 1)
}

// at compares element i.
func (c *condition) at(i uint64) bool {
	c.found, c.seen = i, c.load(i)
	x, v := c.seen<<c.shift^c.flip, c.target(i)<<c.shift^c.flip
	switch c.cmp {
	case CmpEQ:
		return x == v
	case CmpNE:
		return x != v
	case CmpGT:
		return x > v
	case CmpGE:
		return x >= v
	case CmpLT:
		return x < v
	}
	return x <= v
}

// out reports whether element i is skipped.
func (c *condition) out(i uint64) bool { return c.status != nil && c.status[i] }

// holds checks a condition of one element.
func (c *condition) holds() bool { return c.at(0) }

// idle reports whether all elements are skipped.
func (c *condition) idle() bool {
	for i := range c.n {
		if !c.out(i) {
			return false
		}
	}
	return true
}

// all reports whether all elements have compared. It resumes where the last call stopped.
func (c *condition) all() bool {
	for i := c.found; i < c.n; i++ {
		if !c.out(i) && !c.at(i) {
			return false
		}
		c.found = i + 1
	}
	return true
}

// any finds an element that compares.
func (c *condition) any() bool {
	for i := range c.n {
		if !c.out(i) && c.at(i) {
			return true
		}
	}
	return false
}

// which returns the index of an element that compares, or -1.
func (c *condition) which() int {
	if c.any() {
		return int(c.found)
	}
	return -1
}

// some returns the indices of all elements that compare.
func (c *condition) some() []int {
	if !c.any() {
		return nil
	}
	return c.rest()
}

// rest continues some after the first match.
func (c *condition) rest() []int {
	some := []int{int(c.found)}
	for i := c.found + 1; i < c.n; i++ {
		if !c.out(i) && c.at(i) {
			some = append(some, int(i))
		}
	}
	return some
}
