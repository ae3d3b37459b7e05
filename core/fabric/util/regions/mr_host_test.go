// SPDX-License-Identifier: MIT

package regions

import (
	"testing"

	"mori/core/fabric"
)

func TestHostFindsTheRegionOfMemory(t *testing.T) {
	table := NewTable()
	table.TakeDevice()
	host, err := table.Register(fabric.Buffer{Addr: 1000, Len: 100}, 0, fabric.RegionKey{ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Register(fabric.Buffer{Addr: 5000, Len: 100, Kind: fabric.MemCUDA}, 0, fabric.RegionKey{ID: 2}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		addr, n uint64
		want    *MR
	}{{1000, 100, host}, {1050, 50, host}, {1100, 0, host}, {1050, 51, nil}, {999, 2, nil}, {5000, 10, nil}, {1050, ^uint64(0), nil}} {
		got := table.Host(c.addr, c.n)
		if got != c.want {
			t.Errorf("%d bytes at %d: %v, want %v", c.n, c.addr, got, c.want)
		}
		if got != nil {
			got.Release()
		}
	}
	if err := host.Close(); err != nil {
		t.Fatal(err)
	}
	if table.Host(1000, 1) != nil {
		t.Error("a closed region is found")
	}
}
