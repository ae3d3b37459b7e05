// SPDX-License-Identifier: MIT

package serial

import (
	"context"
	"sync"
)

// A Mutex is a mutex whose wait ends with a context. The zero value is unlocked.
type Mutex struct {
	once sync.Once
	slot chan struct{}
}

func (m *Mutex) init() { m.once.Do(func() { m.slot = make(chan struct{}, 1) }) }

// Lock waits for the mutex, or returns the cause of ctx's end.
func (m *Mutex) Lock(ctx context.Context) error {
	m.init()
	select {
	case m.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Unlock releases the mutex. The caller holds it.
func (m *Mutex) Unlock() { <-m.slot }
