// SPDX-License-Identifier: MIT

// Package devicetest gives core/fabric/fabrictest memory on the host's devices, real or emulated
// (native/gpu/gputest):
//
//	func TestDevice(t *testing.T) {
//		gputest.Need(t)
//		fabrictest.TestDevice(t, open, devicetest.Places(t)...)
//	}
package devicetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/internal/sys"
)

// patience is the time limit of a copy on a slow, busy machine.
const patience = 30 * time.Second

// Places returns the first two devices, after a first use, because drivers open descriptors then
// and keep them.
func Places(t *testing.T) []fabrictest.Place {
	t.Helper()
	devices, err := device.Devices()
	if err != nil {
		t.Fatal(err)
	}
	var places []fabrictest.Place
	for i, d := range devices[:min(2, len(devices))] {
		p := fabrictest.Place{Name: fmt.Sprintf("gpu%d", i), Alloc: func(tb testing.TB, n int) fabrictest.Memory { return Alloc(tb, d, n) }}
		t.Run("first use of "+p.Name, func(t *testing.T) { p.Alloc(t, 4096).Write(make([]byte, 4096)) })
		places = append(places, p)
	}
	return places
}

// A Memory is memory of a device.
type Memory struct {
	testing.TB
	dev *device.Device
	mem *device.Memory
}

// Alloc allocates n bytes on d until the test ends.
func Alloc(tb testing.TB, d *device.Device, n int) *Memory {
	tb.Helper()
	m, err := d.Alloc(uint64(max(n, 1)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &Memory{tb, d, m}
}

var kinds = map[device.Vendor]fabric.MemKind{device.CUDA: fabric.MemCUDA, device.HIP: fabric.MemHIP}

// Buffer returns all of the memory.
func (m *Memory) Buffer() fabric.Buffer {
	return fabric.Buffer{Addr: m.mem.Addr(), Len: m.mem.Bytes(), Kind: kinds[m.dev.Vendor], Device: m.dev.Ordinal}
}

// Write writes the memory.
func (m *Memory) Write(b []byte) {
	m.Helper()
	m.move(len(b), func(s *device.Stream, host *device.HostMemory) error {
		copy(sys.Bytes(host.Addr(), len(b)), b)
		return s.Copy(m.mem.Addr(), host.Addr(), uint64(len(b)))
	}, func(*device.HostMemory) {})
}

// Read reads the memory.
func (m *Memory) Read(b []byte) {
	m.Helper()
	m.move(len(b), func(s *device.Stream, host *device.HostMemory) error {
		return s.Copy(host.Addr(), m.mem.Addr(), uint64(len(b)))
	}, func(host *device.HostMemory) { copy(b, sys.Bytes(host.Addr(), len(b))) })
}

// move copies through pinned memory on its own stream.
func (m *Memory) move(n int, begin func(*device.Stream, *device.HostMemory) error, end func(*device.HostMemory)) {
	m.Helper()
	if n == 0 {
		return
	}
	must := func(err error) {
		m.Helper()
		if err != nil {
			m.Fatal(err)
		}
	}
	host, err := m.dev.AllocHost(uint64(n))
	must(err)
	s, err := m.dev.NewStream(device.Normal)
	must(err)
	must(begin(s, host))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(s.Wait(ctx))
	end(host)
	must(s.Close())
	must(host.Close())
}
