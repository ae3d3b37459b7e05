// SPDX-License-Identifier: MIT

package serial

import (
	"context"
	"errors"
	"sync"
	"testing"
)

func TestAMutexExcludesUntilItIsUnlocked(t *testing.T) {
	var m Mutex
	var wg sync.WaitGroup
	counter := 0
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 1000 {
				if err := m.Lock(context.Background()); err != nil {
					t.Error(err)
					return
				}
				counter++
				m.Unlock()
			}
		}()
	}
	wg.Wait()
	if counter != 8000 {
		t.Errorf("counted to %d, want 8000", counter)
	}
}

func TestTheWaitForAMutexEndsWithItsContext(t *testing.T) {
	var m Mutex
	if err := m.Lock(context.Background()); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if err := m.Lock(ctx); !errors.Is(err, cause) {
		t.Errorf("%v, want the cause of the context's end", err)
	}
	m.Unlock()
	if err := m.Lock(context.Background()); err != nil {
		t.Errorf("after Unlock: %v", err)
	}
}

// A call that comes while the function runs makes it run once more, and two runs never overlap.
func TestOverlappingCallsAreMerged(t *testing.T) {
	var c Calls
	runs := 0
	c.Do(func() {
		if runs++; runs == 1 {
			for range 3 {
				c.Do(func() { t.Error("a nested call ran by itself") })
			}
		}
	})
	if runs != 2 {
		t.Errorf("%d runs, want 2: the first and one for the three nested calls", runs)
	}
	c.Settle()

	var wg sync.WaitGroup
	running, done := 0, 0 // guarded by c
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 1000 {
				c.Do(func() {
					if running++; running != 1 {
						t.Error("two runs at once")
					}
					running--
					done++
				})
			}
		}()
	}
	wg.Wait()
	c.Settle()
	if done == 0 || done > 8000 {
		t.Errorf("%d runs for 8000 calls", done)
	}
}
