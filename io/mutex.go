// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"sync"
)

// A ctxMutex is a mutex whose wait ends with a context. The zero value is unlocked.
type ctxMutex struct {
	once sync.Once
	slot chan struct{}
}

func (m *ctxMutex) init() { m.once.Do(func() { m.slot = make(chan struct{}, 1) }) }

// lock waits for the mutex, or returns the cause of ctx's end.
func (m *ctxMutex) lock(ctx context.Context) error {
	m.init()
	select {
	case m.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *ctxMutex) unlock() { <-m.slot }
