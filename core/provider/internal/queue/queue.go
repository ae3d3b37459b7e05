// SPDX-License-Identifier: MIT

// Package queue has the first-in first-out queue of the transports.
package queue

// A FIFO is a queue that reuses its memory. The caller does the locking.
type FIFO[T any] struct {
	items []T
	head  int
}

// Len returns the number of items.
func (f *FIFO[T]) Len() int { return len(f.items) - f.head }

// Push adds v at the end.
func (f *FIFO[T]) Push(v T) {
	if f.head > 0 && len(f.items) == cap(f.items) {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, v)
}

// Peek returns the first item. The queue must not be empty. The pointer is valid until the next
// Push or Pop.
func (f *FIFO[T]) Peek() *T { return &f.items[f.head] }

// Pop removes and returns the first item. The queue must not be empty.
func (f *FIFO[T]) Pop() T {
	var zero T
	v := f.items[f.head]
	f.items[f.head] = zero
	f.head++
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return v
}
