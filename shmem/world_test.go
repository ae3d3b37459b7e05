// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/memory"
)

// errPretended ends Worlds of tests for good.
var errPretended = errors.New("PE 7 is dead")

// run makes a World of n PEs in this process and calls f on each at once. A "%d" in the NodeID is
// the PE. Of several NodeIDs with a "|" between them the PEs have one after the other. If there is
// a Device, they have all devices in turn.
func run(t testing.TB, n int, cfg Config, f func(w *World) error) {
	t.Helper()
	if cfg.HeapSize == 0 {
		cfg.HeapSize = 1 << 22
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 20 * time.Second
	}
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i, g := range bootstrap.Local(n) {
		wait.Add(1)
		cfg := cfg
		if strings.Contains(cfg.NodeID, "%d") {
			cfg.NodeID = fmt.Sprintf(cfg.NodeID, i)
		}
		ids := strings.Split(cfg.NodeID, "|")
		cfg.NodeID = ids[i%len(ids)]
		if cfg.Device != nil {
			cfg.Device = gpus(t)[i%len(gpus(t))]
		}
		go func() {
			defer wait.Done()
			w, err := Init(context.Background(), g, cfg)
			if err == nil {
				err = f(w)
				if ended := w.Finalize(context.Background()); !errors.Is(ended, errPretended) {
					err = errors.Join(err, ended)
				}
			}
			errs[i] = err
		}()
	}
	wait.Wait()
	for pe, err := range errs {
		if err != nil {
			t.Errorf("PE %d: %v", pe, err)
		}
	}
}

func TestStoresReachTheOtherPE(t *testing.T) {
	run(t, 3, Config{}, func(w *World) error {
		right := (w.MyPE() + 1) % w.NPEs()
		at := w.Ptr(w.heap.Main().Base+64, right)
		memory.Store64(at, uint64(100+w.MyPE()))
		if err := second(w.pes.Gather(context.Background(), nil)); err != nil {
			return err
		}
		left := (w.MyPE() + 2) % w.NPEs()
		if got := memory.Load64(w.heap.Main().Base + 64); got != uint64(100+left) {
			t.Errorf("PE %d has %d, want %d", w.MyPE(), got, 100+left)
		}
		return nil
	})
}
