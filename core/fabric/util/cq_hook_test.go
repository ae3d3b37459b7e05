// SPDX-License-Identifier: MIT

package util

import (
	"sync"
	"sync/atomic"
	"testing"

	"mori/core/fabric"
)

func TestOnReadyMissesNothing(t *testing.T) {
	q, err := NewCQ(4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Reserve(1); err != nil {
		t.Fatal(err)
	}
	q.Push(fabric.Completion{Ctx: 1}) // before the hook
	var seen atomic.Int64
	q.OnReady(func() {
		var done [3]fabric.Completion
		for n, _ := q.Read(done[:]); n > 0; n, _ = q.Read(done[:]) {
			seen.Add(int64(n))
		}
	})
	if seen.Load() != 1 {
		t.Fatalf("%d entries seen of the one that was there", seen.Load())
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 1000 {
				if err := q.Reserve(1); err != nil {
					t.Error(err)
					return
				}
				q.Push(fabric.Completion{})
				q.TryPush(fabric.Completion{})
			}
		}()
	}
	wg.Wait()
	if n := seen.Load(); n != 8001 {
		t.Errorf("%d entries seen, 8001 were pushed", n)
	}
	q.OnReady(nil)
	q.TryPush(fabric.Completion{})
	if n := seen.Load(); n != 8001 {
		t.Error("the hook was called after it was taken away")
	}
}
