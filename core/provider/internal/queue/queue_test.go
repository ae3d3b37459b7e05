// SPDX-License-Identifier: MIT

package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFIFO compares a queue with a slice over random pushes and pops.
func TestFIFO(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var q FIFO[int]
	var model []int
	for i := range 10_000 {
		if q.Len() != len(model) {
			t.Fatalf("length %d, want %d", q.Len(), len(model))
		}
		if len(model) > 0 && rng.IntN(2) == 0 {
			if first := *q.Peek(); first != model[0] {
				t.Fatalf("peek gives %d, want %d", first, model[0])
			}
			if got := q.Pop(); got != model[0] {
				t.Fatalf("pop gives %d, want %d", got, model[0])
			}
			model = slices.Delete(model, 0, 1)
			continue
		}
		q.Push(i)
		model = append(model, i)
	}
}

// TestFIFOKeepsItsMemory uses a queue that never becomes empty. Its memory stays bounded, and it
// keeps no reference to popped items.
func TestFIFOKeepsItsMemory(t *testing.T) {
	var q FIFO[*int]
	for i := range 8 {
		q.Push(&i)
	}
	for i := range 10_000 {
		q.Push(&i)
		q.Pop()
	}
	if n := cap(q.items); n > 64 {
		t.Errorf("8 items take room for %d", n)
	}
	for i, p := range q.items[:cap(q.items)] {
		if p != nil && (i < q.head || i >= len(q.items)) {
			t.Errorf("entry %d of %d to %d still refers to an item", i, q.head, len(q.items))
		}
	}
}
