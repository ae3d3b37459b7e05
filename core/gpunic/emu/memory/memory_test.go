// SPDX-License-Identifier: MIT

package memory

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
)

// held is a domain whose regions 1 and 2 lie behind each other in b: the first may only be read.
func held(b []byte) Domain {
	at, n := sys.AddrOf(b), uint64(len(b)/2)
	p := &Pinned{Addr: at, N: 2 * n, Mem: Host{}}
	return Domain{PD: 7, Regions: Regions{
		1: {Pinned: p, PD: 7, Key: 0x101, Addr: at, N: n},
		2: {Pinned: p, PD: 7, Key: 0x202, Addr: at + n, N: n, Write: true, RemoteRead: true, RemoteWrite: true},
		3: {Pinned: p, PD: 8, Key: 0x303, Addr: at, N: n},
	}}
}

func TestRegionIsFoundOrRefused(t *testing.T) {
	b := make([]byte, 64)
	d, at := held(b), sys.AddrOf(b)
	for _, c := range []struct {
		key     uint32
		addr, n uint64
		need    Right
		says    string // "" for success
	}{
		{0x101, at, 32, ToRead, ""},
		{0x202, at + 33, 31, ToRemoteWrite, ""},
		{0x101, at, 32, ToWrite, "right"},
		{0x202, at + 32, 8, ToAtomic, "right"},
		{0x102, at, 1, ToRead, "unknown"},
		{0x901, at, 1, ToRead, "unknown"},
		{0x303, at, 1, ToRead, "another protection domain"},
		{0x101, at + 1, 32, ToRead, "are not in"},
		{0x101, at - 1, 1, ToRead, "are not in"},
		{0x101, at, 1 << 63, ToRead, "are not in"},
		{0x101, ^uint64(0), 2, ToRead, "are not in"},
	} {
		if _, err := d.Region(c.key, c.addr, c.n, c.need); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	runtime.KeepAlive(b)
}

func TestGatherAndScatter(t *testing.T) {
	b := []byte("0123456789abcdef")
	d, at := held(b), sys.AddrOf(b)
	list := []mlx5.Data{{Bytes: 3, Key: 0x101, Addr: at + 5}, {Bytes: 4, Key: 0x202, Addr: at + 8}}
	got := make([]byte, 5)
	if err := d.Gather(list, 1, got); err != nil || string(got) != "6789a" {
		t.Errorf("gathered %q: %v", got, err)
	}
	if err := d.Scatter(list, 4, []byte("XYZ")); err != nil || string(b) != "012345678XYZcdef" {
		t.Errorf("scattered %q: %v", b, err)
	}
	if err := d.Scatter(list, 0, []byte("X")); !errors.As(err, new(ProtectionError)) {
		t.Errorf("scatter to a region that may only be read: %v", err)
	}
	runtime.KeepAlive(b)
}

func TestHostMemoryThatIsGone(t *testing.T) {
	b, err := sys.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	at := sys.AddrOf(b)
	add := func(v uint64) uint64 { return v + 5 }
	for _, width := range []int{4, 8} {
		if old, err := Change(Host{}, at, width, add); err != nil || old != uint64(width-4)/4*5 {
			t.Errorf("%d bytes: %d, %v", width, old, err)
		}
	}
	if err := sys.Free(b); err != nil {
		t.Fatal(err)
	}
	if _, err := Change(Host{}, at, 8, add); err != syscall.EFAULT {
		t.Errorf("change: %v", err)
	}
	if v := (Record{Host{}, at}).Word(0); v != 0 {
		t.Errorf("record: %d", v)
	}
}
