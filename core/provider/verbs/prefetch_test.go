// SPDX-License-Identifier: MIT

package verbs

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/native/verbs"
	"mori/native/verbs/verbstest"
)

// TestPrefetch shows a region to the devices before there is any connection. It stays with them
// until it closes.
func TestPrefetch(t *testing.T) {
	verbstest.NeedEmulated(t)
	ctx := context.Background()
	fab, err := openQuiet(t).Open(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	dom, err := fab.Domain(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	defer runtime.KeepAlive(buf)
	reg := func(id uint64) fabric.MR {
		mr, err := dom.Reg(fabric.Buffer{Addr: sys.AddrOf(buf), Len: uint64(len(buf))}, fabric.AccessRemoteWrite, fabric.RegionKey{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return mr
	}
	before := verbstest.Objects(t)
	mr := reg(1)
	if n := verbstest.Objects(t) - before; n != 0 {
		t.Errorf("a region that nobody needs yet is %d objects", n)
	}
	for range 2 {
		if err := mr.(fabric.Prefetcher).Prefetch(); err != nil {
			t.Fatal(err)
		}
	}
	devices, err := verbs.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if n := verbstest.Objects(t) - before; n != len(devices) {
		t.Errorf("%d objects, want a region on each of %d devices", n, len(devices))
	}
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	if n := verbstest.Objects(t) - before; n != 0 {
		t.Errorf("%d objects are left of a region that was closed", n)
	}
	if err := mr.(fabric.Prefetcher).Prefetch(); !errors.Is(err, fabric.ErrNoKey) {
		t.Errorf("of a closed region: %v", err)
	}

	verbstest.Fail(t, "ibv_reg_mr=12")
	mr = reg(2)
	if err := mr.(fabric.Prefetcher).Prefetch(); err == nil || errors.Is(err, fabric.ErrNotSupported) {
		t.Errorf("no device takes it: %v", err)
	}
	if err := errors.Join(mr.Close(), dom.Close(), fab.Close()); err != nil {
		t.Error(err)
	}
}
