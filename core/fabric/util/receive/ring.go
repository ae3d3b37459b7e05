// SPDX-License-Identifier: MIT

package receive

// A ring is a queue that grows by doubling and keeps its memory. Its users bound it.
type ring[T any] struct {
	items []T // length is 0 or a power of two
	head  uint
	tail  uint
}

func (r *ring[T]) len() int { return int(r.tail - r.head) }

func (r *ring[T]) push(v T) {
	if r.len() == len(r.items) {
		grown := make([]T, max(8, 2*len(r.items)))
		for i := range r.len() {
			grown[i] = r.items[(r.head+uint(i))&uint(len(r.items)-1)]
		}
		r.items, r.head, r.tail = grown, 0, uint(r.len())
	}
	r.items[r.tail&uint(len(r.items)-1)] = v
	r.tail++
}

// pop removes the oldest element and clears its slot, so that the ring does not keep its memory
// alive.
func (r *ring[T]) pop() T {
	var zero T
	p := &r.items[r.head&uint(len(r.items)-1)]
	v := *p
	*p = zero
	r.head++
	return v
}
