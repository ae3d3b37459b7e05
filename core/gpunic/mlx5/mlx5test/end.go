// SPDX-License-Identifier: MIT

package mlx5test

import (
	"testing"

	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
)

// An End is one end of a connection in a test: a queue, and memory that both ends may access.
type End struct {
	Mem    []byte
	Region *mlx5.Region
	Queue  *mlx5.Queue
}

// Addr returns the address of the memory's byte at an offset.
func (e *End) Addr(at int) uint64 { return sys.AddrOf(e.Mem) + uint64(at) }

// Span returns n bytes of the memory from an offset on.
func (e *End) Span(at, n int) Span {
	return Span{Addr: e.Addr(at), N: uint32(n), Key: e.Region.View().LKey}
}

// Open opens the device of a NIC, and closes it when the test ends.
func Open(t testing.TB, nic mlx5.Cmd) *mlx5.Device {
	t.Helper()
	dev, err := mlx5.Open(nic)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "device", dev.Close)
	return dev
}

// NewEnd makes a queue and a region of this many bytes with these rights, and closes both when the
// test ends.
func NewEnd(t testing.TB, dev *mlx5.Device, cfg mlx5.QueueConfig, bytes int, access mlx5.Access) End {
	t.Helper()
	var e End
	var err error
	if e.Mem, err = sys.Alloc(bytes); err != nil {
		t.Fatal(err)
	}
	closeLater(t, "memory", func() error { return sys.Free(e.Mem) })
	if e.Region, err = dev.Register(e.Addr(0), uint64(bytes), access); err != nil {
		t.Fatal(err)
	}
	closeLater(t, "region", e.Region.Close)
	if e.Queue, err = dev.NewQueue(cfg); err != nil {
		t.Fatal(err)
	}
	closeLater(t, "queue", e.Queue.Close)
	return e
}

// Connect connects two ends to each other.
func Connect(t testing.TB, a, b *End, path mlx5.PathConfig) {
	t.Helper()
	for _, ends := range [][2]*End{{a, b}, {b, a}} {
		if err := ends[0].Queue.Connect(ends[1].Queue.End(), path); err != nil {
			t.Fatal(err)
		}
	}
}

func closeLater(t testing.TB, what string, end func() error) {
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Errorf("close the %s: %v", what, err)
		}
	})
}
