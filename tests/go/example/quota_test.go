// SPDX-License-Identifier: MIT

package quota_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.org/quota"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/provider/mem"
)

// TestFabric runs the conformance suite of mori on a provider that is not part of it.
func TestFabric(t *testing.T) {
	fabrictest.Test(t, func(testing.TB) fabric.Provider { return quota.Over(mem.New(mem.Options{}), 1<<40) })
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestRegistry finds the provider among others, opens it, and deregisters it while it is in use.
func TestRegistry(t *testing.T) {
	ctx := testContext(t)
	r := fabric.NewRegistry()
	for _, p := range []fabric.Provider{quota.Over(mem.New(mem.Options{}), 8192), mem.New(mem.Options{})} {
		if err := r.Register(p); err != nil {
			t.Fatal(err)
		}
	}
	infos, err := r.GetInfo(ctx, "", "", &fabric.Info{EPType: fabric.EPMsg})
	if err != nil || len(infos) != 2 || infos[0].Provider != "quota;mem" || infos[1].Provider != "mem" {
		t.Fatalf("providers in order of registration: %+v, %v", infos, err)
	}
	r.SetFilter("^mem")
	if infos, err = r.GetInfo(ctx, "", "", &fabric.Info{EPType: fabric.EPMsg}); err != nil || len(infos) != 1 || infos[0].Provider != "quota;mem" {
		t.Fatalf("without mem: %+v, %v", infos, err)
	}
	f, err := r.Open(ctx, infos[0])
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := r.Deregister(short, "quota;mem"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("deregister a provider whose fabric is open: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Deregister(ctx, "quota;mem"); err != nil && !errors.Is(err, fabric.ErrNoData) {
		t.Fatalf("deregister after close: %v", err)
	}
	if _, err := r.GetInfo(ctx, "", "", nil); !errors.Is(err, fabric.ErrNoData) {
		t.Fatalf("a provider that is gone answers: %v", err)
	}
}

func TestQuota(t *testing.T) {
	ctx := testContext(t)
	p := quota.Over(mem.New(mem.Options{}), 8192)
	infos, err := p.GetInfo(ctx, "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := p.Open(ctx, infos[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := f.Domain(ctx, infos[0])
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	half := fabric.Buffer{Addr: 1 << 20, Len: 5000} // registered only, never touched
	m, err := d.Reg(half, fabric.AccessRemoteRead, fabric.RegionKey{ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reg(half, fabric.AccessRemoteRead, fabric.RegionKey{ID: 2}); !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("10000 of 8192 bytes: %v", err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if m, err = d.Reg(half, fabric.AccessRemoteRead, fabric.RegionKey{ID: 2}); err != nil {
		t.Fatalf("after the first was closed: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}
