// SPDX-License-Identifier: MIT

package heap

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/device"
	"mori/core/memory"
	"mori/shmem/internal/peers"
)

// oneHost are PEs that all map each other's memory.
type oneHost struct{}

func (oneHost) Maps(int) bool            { return true }
func (oneHost) Linked(int) bool          { return true }
func (oneHost) Owner(int) *device.Device { return nil }

// heaps makes a growing heap on each of n PEs and calls f there.
func heaps(t *testing.T, n int, size, chunk uint64, f func(g *peers.Group, h *Heap, a *Allocator) error) {
	t.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i, ranks := range bootstrap.Local(n) {
		all.Add(1)
		go func() {
			defer all.Done()
			g := peers.New(ranks, peers.Options{Timeout: 20 * time.Second})
			share, err := memory.NewSharer()
			if err != nil {
				errs[i] = err
				return
			}
			m := NewMaker(g, Resources{Share: share, Mode: VMMHeap, Where: oneHost{}})
			h, a, err := Open(context.Background(), g, m, size, chunk, func() error { return nil })
			if err == nil {
				err = f(g, h, a)
			}
			_, last := g.Gather(context.Background(), nil)
			g.End()
			errs[i] = errors.Join(err, last, h.Drop(m), share.Close(), g.Close())
		}()
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// A PE whose memory does not grow fails the allocation of all, and they go on.
func TestHeapThatCannotGrow(t *testing.T) {
	heaps(t, 2, 1<<20, 64<<10, func(g *peers.Group, h *Heap, a *Allocator) error {
		if g.Me == 1 {
			if err := h.main.part.grow(512 << 10); err != nil { // ahead of the others: it cannot be made smaller
				return err
			}
		}
		_, err := a.Malloc(100 << 10)
		if !errors.Is(err, peers.ErrNoMemory) || g.Me == 0 && !strings.Contains(err.Error(), "PE 1") {
			t.Errorf("PE %d: %v", g.Me, err)
		}
		if g.Me == 0 && !errors.Is(err, peers.ErrElsewhere) {
			t.Errorf("PE 0 has no error of its own: %v", err)
		}
		if u := UsageOf(a); u.Used != 0 || u.Present != 64<<10 {
			t.Errorf("%+v", u)
		}
		at, err := a.Malloc(600 << 10)
		return errors.Join(err, a.Free(at))
	})
}
