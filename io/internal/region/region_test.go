// SPDX-License-Identifier: MIT

package region

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"reflect"
	"runtime"
	"testing"
	"time"

	"mori/io/internal/control"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
)

var self = &control.Self{Key: "a", Incarnation: 7, Log: slog.New(slog.DiscardHandler)}

// host registers a region of n bytes of host memory in a table.
func host(t *testing.T, in *Table, n int) *Region {
	t.Helper()
	mem := make([]byte, n)
	t.Cleanup(func() { runtime.KeepAlive(mem) })
	r, err := New(self, Request{Addr: uint64(reflect.ValueOf(mem).Pointer()), Size: uint64(n), Ordinal: -1, Location: descriptor.LocCPU})
	if err != nil {
		t.Fatal(err)
	}
	in.Add(r)
	return r
}

func TestATableFindsRegions(t *testing.T) {
	var all Table
	if _, _, ok := all.Place(); ok || all.Granted(descriptor.RegionKey{}) != nil {
		t.Error("an empty table has a region")
	}
	first, second := host(t, &all, 64), host(t, &all, 128)
	if first.Desc().ID == second.Desc().ID || first.Desc().Secret == second.Desc().Secret {
		t.Error("two regions share an id or a secret")
	}
	key := first.Desc().Key()
	if all.Granted(key) != first {
		t.Error("a region is not found by its key")
	}
	key.Secret[3] ^= 1
	if all.Granted(key) != nil {
		t.Error("a region is found by another key")
	}
	for what, change := range map[string]func(*descriptor.Memory){
		"nothing":             func(*descriptor.Memory) {},
		"another engine":      func(d *descriptor.Memory) { d.EngineKey = "b" },
		"another id":          func(d *descriptor.Memory) { d.ID += 10 },
		"another size":        func(d *descriptor.Memory) { d.Size++ },
		"another incarnation": func(d *descriptor.Memory) { d.Incarnation++ },
	} {
		d := *second.Desc()
		if change(&d); (all.Of(d, "a") == second) != (what == "nothing") {
			t.Errorf("%s is changed: the table finds %v", what, all.Of(d, "a"))
		}
	}
	id := second.Desc().ID
	if !all.Remove(id) || all.Remove(id) || len(all.All()) != 1 {
		t.Error("a region is removed once")
	}
	if third := host(t, &all, 64); third.Desc().ID == id {
		t.Error("an id is used again")
	}
}

func TestMemoryThatCannotBeRegistered(t *testing.T) {
	for what, q := range map[string]Request{
		"it wraps round":      {Addr: math.MaxUint64 - 4, Size: 64, Location: descriptor.LocCPU},
		"no such location":    {Addr: 4096, Size: 64, Location: descriptor.LocGPU + 1},
		"memory not mapped":   {Addr: 4096, Size: 64, Location: descriptor.LocCPU},
		"nor at its end":      {Addr: 1 << 46, Size: 1 << 40, Location: descriptor.LocCPU},
		"a negative location": {Addr: 4096, Size: 64, Location: -1},
	} {
		if r, err := New(self, q); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: %v, %v", what, r, err)
		}
	}
}

func TestRetireWaitsForUsers(t *testing.T) {
	var all Table
	r := host(t, &all, 64)
	if !r.Enter() || !r.Open() {
		t.Fatal("a new region is closed")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Retire(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a user: %v", err)
	}
	if r.Enter() || r.Open() {
		t.Error("a retired region has new users")
	}
	done := make(chan error)
	go func() { done <- r.Retire(context.Background()) }()
	r.Leave()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the last user left, and Retire still waits")
	}
}

func TestPlaceIsThatOfAllRegions(t *testing.T) {
	var all Table
	all.Add(&Region{desc: descriptor.Memory{DeviceBusID: "0000:01:00.0", NUMANode: 1}})
	if gpu, node, ok := all.Place(); gpu != "0000:01:00.0" || node != 1 || !ok {
		t.Errorf("one region: %q, %d, %v", gpu, node, ok)
	}
	all.Add(&Region{desc: descriptor.Memory{DeviceBusID: "0000:02:00.0", NUMANode: 1}})
	if gpu, node, ok := all.Place(); gpu != "" || node != 1 || !ok {
		t.Errorf("two GPUs of one node: %q, %d, %v", gpu, node, ok)
	}
}
