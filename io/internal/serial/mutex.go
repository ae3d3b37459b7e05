// SPDX-License-Identifier: MIT

package serial

import (
	"context"
	"sync"
)

// A Mutex is a mutex whose Lock is bounded by a context. The zero value is unlocked.
type Mutex struct {
	once sync.Once
	slot chan struct{}
}

func (m *Mutex) init() { m.once.Do(func() { m.slot = make(chan struct{}, 1) }) }

// Lock locks the mutex. It returns the cause of ctx if ctx ends first.
func (m *Mutex) Lock(ctx context.Context) error {
	m.init()
	select {
	case m.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Unlock unlocks the mutex, which the caller holds.
func (m *Mutex) Unlock() { <-m.slot }
