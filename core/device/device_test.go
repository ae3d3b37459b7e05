// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"mori/core/internal/sys"
	"mori/native/gpu"
)

func TestDevices(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		for i, d := range b.devices {
			if d.Ordinal != i || d.Name == "" || d.Arch == "" || d.Bytes == 0 || d.Units == 0 || d.Warp == 0 || d.Driver == 0 ||
				len(d.UUID) < 8 || d.BusID != strings.ToLower(d.BusID) || len(strings.Split(d.BusID, ":")) != 3 || d.MaxThreads < 256 {
				t.Errorf("%+v", d.Info)
			}
			if b.sys != here && d.Vendor == HIP && d.Arch != map[int]string{5: "gfx90a", 6: "gfx942", 7: "gfx942"}[d.Driver/10000000] {
				t.Errorf("driver %d has %s", d.Driver, d.Arch)
			}
			t.Logf("%+v", d.Info)
			for _, p := range b.devices {
				r := must[Reach](t)(d.Reach(p))
				if d == p && !r.Access || r.Access && d != p && r.Link == "" {
					t.Errorf("%s to %s: %+v", d, p, r)
				}
				t.Logf("%s to %s: %+v", d, p, r)
			}
		}
		again := must[[]*Device](t)(b.sys.all())
		if again[0] != b.devices[0] {
			t.Error("a device has two objects")
		}
	})
}

func TestNoDevice(t *testing.T) {
	t.Run("the driver knows none", func(t *testing.T) {
		for _, v := range []Vendor{CUDA, HIP} {
			t.Setenv("FAKE_GPU_COUNT", "0")
			_, err := emulatedSystem(t, v).all()
			if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "no "+v.String()+" device") {
				t.Errorf("%v: %v", v, err)
			}
		}
	})
	t.Run("no library", func(t *testing.T) {
		_, err := emulatedSystemAt(CUDA, "libcuda-that-is-not.so.1").all()
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "libcuda-that-is-not.so.1: cannot open") {
			t.Error(err)
		}
	})
	t.Run("it cannot be told", func(t *testing.T) {
		t.Setenv("FAKE_GPU", "cuInit=802")
		s := emulatedSystem(t, CUDA)
		if _, err := s.all(); err == nil || errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "cuInit: CUDA_ERROR_FAKE: fake error") {
			t.Error(err)
		}
		t.Setenv("FAKE_GPU", "")
		if devices, err := s.all(); err != nil || len(devices) != 2 {
			t.Errorf("asked again: %v, %v", devices, err)
		}
	})
	t.Run("lookup without a driver", func(t *testing.T) {
		if p, err := emulatedSystemAt(HIP, "nowhere.so").lookup(4096); err != nil || p.Kind != Unknown {
			t.Error(p, err)
		}
	})
}

func TestMemory(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		for _, d := range b.devices {
			const n = 1 << 20
			m, err := d.Alloc(n)
			closing(t, m, err)
			h, err := d.AllocHost(n)
			closing(t, h, err)
			s, err := d.NewStream(Urgent)
			closing(t, s, err)
			free, total, err := d.MemInfo()
			if err != nil || total == 0 || free > total {
				t.Error(free, total, err)
			}
			ok(t, s.Set(m.Addr(), 0x5a, n))
			if got := words(t, s, m.Addr(), n/4); !all(got, 0x5a5a5a5a) {
				t.Error("memory was not filled")
			}
			host := sys.Slice[uint32](h.Addr(), n/4)
			for i := range host {
				host[i] = uint32(i)
			}
			ok(t, s.Copy(m.Addr(), h.Addr(), n))
			got := words(t, s, m.Addr(), n/4)
			for i, w := range got {
				if w != uint32(i) {
					t.Fatalf("word %d is %d", i, w)
				}
			}
		}
	})
}

// NICs want queues at pages, and drivers give small pieces anywhere.
func TestHostMemoryBeginsAtAPage(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		for _, n := range []uint64{64, 512, pageBytes, pageBytes, 3 * pageBytes, 1 << 20} {
			h := must[*HostMemory](t)(b.devices[0].AllocHost(n))
			closing(t, h, nil)
			if n >= pageBytes && (h.Addr()%pageBytes != 0 || h.DeviceAddr()%pageBytes != 0 || h.Bytes() != n) {
				t.Errorf("%d bytes are at %#x, for the device at %#x", h.Bytes(), h.Addr(), h.DeviceAddr())
			}
			p := must[Pointer](t)(b.sys.lookup(h.Addr() + n - 1))
			if p.Kind != Host {
				t.Errorf("the last of %d bytes is %v", n, p.Kind)
			}
		}
	})
}

func TestMemoryRefused(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		d := b.devices[0]
		if _, err := d.Alloc(1 << 50); !errors.Is(err, ErrNoMemory) || !strings.Contains(err.Error(), d.String()) {
			t.Error(err)
		}
		m := must[*Memory](t)(d.Alloc(4096))
		ok(t, m.Close())
		ok(t, m.Close())
		s := must[*Stream](t)(d.NewStream(Normal))
		ok(t, s.Close())
		if err := s.Set(m.Addr(), 0, 1); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, err := s.Done(); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		e := must[*Event](t)(d.NewEvent())
		ok(t, e.Close())
		if err := d.ExternalStream(0).After(e); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

func TestRegisterHost(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		d, n := b.devices[0], 4*os.Getpagesize()
		buf := make([]byte, 2*n)
		addr := (sys.AddrOf(buf) + uint64(n) - 1) &^ uint64(os.Getpagesize()-1)
		h := must[*HostMemory](t)(d.RegisterHost(addr, uint64(n)))
		if _, err := d.RegisterHost(addr, uint64(n)); !errors.Is(err, ErrDuplicate) {
			t.Error(err)
		}
		p := must[Pointer](t)(b.sys.lookup(addr + 8))
		if p.Kind != Host || h.DeviceAddr() == 0 {
			t.Errorf("%+v, on the device %#x", p, h.DeviceAddr())
		}
		ok(t, h.Close())
		if p := must[Pointer](t)(b.sys.lookup(addr + 8)); p.Kind != Unknown {
			t.Errorf("%+v", p)
		}
		runtime.KeepAlive(buf)
	})
}

func TestLookup(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		for _, d := range b.devices {
			m, err := d.Alloc(1 << 21)
			closing(t, m, err)
			p := must[Pointer](t)(b.sys.lookup(m.Addr() + 4096))
			if p.Kind != OnDevice || p.Device != d || p.Base != m.Addr() || p.Bytes < 1<<21 || !p.IPC || p.FD || p.DeviceAddr != m.Addr()+4096 {
				t.Errorf("%+v", p)
			}
			h, err := d.AllocHost(4096)
			closing(t, h, err)
			if p := must[Pointer](t)(b.sys.lookup(h.Addr())); p.Kind != Host || p.HostAddr != h.Addr() || p.DeviceAddr != h.DeviceAddr() {
				t.Errorf("%+v", p)
			}
		}
		var local [64]byte
		if p := must[Pointer](t)(b.sys.lookup(sys.AddrOf(local[:]))); p.Kind != Unknown || p.Device != nil {
			t.Errorf("%+v", p)
		}
	})
}

// TestDriverErrors: whatever the driver refuses is an error that names its call, and nothing stays
// open.
func TestDriverErrors(t *testing.T) {
	type try struct {
		cuda, hip string
		do        func(d *Device, s *Stream) error
	}
	drop := func(c closer, err error) error {
		if err == nil {
			return errors.Join(errors.New("no error"), c.Close())
		}
		return err
	}
	tries := []try{
		{"cuMemAlloc_v2", "hipMalloc", func(d *Device, _ *Stream) error { c, err := d.Alloc(8); return drop(c, err) }},
		{"cuMemHostAlloc", "hipHostMalloc", func(d *Device, _ *Stream) error { c, err := d.AllocHost(8); return drop(c, err) }},
		{"cuMemHostGetDevicePointer_v2", "hipHostGetDevicePointer", func(d *Device, _ *Stream) error { c, err := d.AllocHost(8); return drop(c, err) }},
		{"cuMemGetInfo_v2", "hipMemGetInfo", func(d *Device, _ *Stream) error { _, _, err := d.MemInfo(); return err }},
		{"cuStreamCreateWithPriority", "hipStreamCreateWithPriority", func(d *Device, _ *Stream) error { c, err := d.NewStream(Normal); return drop(c, err) }},
		{"cuCtxGetStreamPriorityRange", "hipDeviceGetStreamPriorityRange", func(d *Device, _ *Stream) error { c, err := d.NewStream(Normal); return drop(c, err) }},
		{"cuEventCreate", "hipEventCreateWithFlags", func(d *Device, _ *Stream) error { c, err := d.NewEvent(); return drop(c, err) }},
		{"cuModuleLoadDataEx", "hipModuleLoadData", func(d *Device, _ *Stream) error { c, err := d.Load([]byte("fake")); return drop(c, err) }},
		{"cuMemcpyAsync", "hipMemcpyAsync", func(_ *Device, s *Stream) error { return s.Copy(4096, 8192, 8) }},
		{"cuMemcpyPeerAsync", "hipMemcpyPeerAsync", func(d *Device, s *Stream) error { return s.CopyPeer(4096, d, 8192, d, 8) }},
		{"cuMemsetD8Async", "hipMemsetD8Async", func(_ *Device, s *Stream) error { return s.Set(4096, 0, 8) }},
		{"cuMemGetAllocationGranularity", "hipMemGetAllocationGranularity", func(d *Device, _ *Stream) error { _, err := d.Virtual(); return err }},
		{"cuPointerGetAttributes", "hipPointerGetAttributes", func(d *Device, _ *Stream) error { _, err := d.sys.lookup(4096); return err }},
	}
	for _, v := range []Vendor{CUDA, HIP} {
		d := must[[]*Device](t)(emulatedSystem(t, v).all())[0]
		s, err := d.NewStream(Normal)
		closing(t, s, err)
		before := len(Live())
		for _, c := range tries {
			name := map[Vendor]string{CUDA: c.cuda, HIP: c.hip}[v]
			t.Setenv("FAKE_GPU", name+"=2")
			err := c.do(d, s)
			var refused *gpu.Error
			if !errors.As(err, &refused) || refused.Call != name || refused.Code != 2 || !errors.Is(err, ErrNoMemory) || !strings.Contains(err.Error(), "out of memory") {
				t.Errorf("%s: %v", name, err)
			}
		}
		t.Setenv("FAKE_GPU", "")
		if left := Live(); len(left) != before {
			t.Errorf("%d open, of %d before: %v", len(left), before, left)
		}
	}
}

// TestCurrentStays: no call changes what is current on the thread that makes it.
func TestCurrentStays(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		driver := b.devices[0].gpu.Driver
		before := must[uint64](t)(driver.Current())
		last := b.devices[len(b.devices)-1]
		same := func(what string) {
			t.Helper()
			if now := must[uint64](t)(driver.Current()); now != before {
				t.Errorf("after %s: %#x is current, before %#x", what, now, before)
			}
		}
		m := must[*Memory](t)(last.Alloc(1 << 16))
		same("Alloc")
		s := must[*Stream](t)(last.NewStream(Normal))
		same("NewStream")
		ok(t, s.Set(m.Addr(), 1, 1<<16))
		settle(t, s)
		same("Set and Wait")
		_, err := last.Alloc(1 << 50)
		same("an Alloc that failed")
		if err == nil {
			t.Error("no error")
		}
		_, err = last.Load([]byte("bad"))
		same("a Load that failed")
		if err == nil {
			t.Error("no error")
		}
		ok(t, s.Close())
		ok(t, m.Close())
		same("Close")
	})
}

func TestConcurrentUse(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				d := b.devices[g%len(b.devices)]
				for range 8 {
					m, err := d.Alloc(4096)
					if err != nil {
						t.Error(err)
						return
					}
					s, err := d.NewStream(Normal)
					if err != nil {
						t.Error(err)
						return
					}
					if !all(wordsOf(t, s, m, byte(g)), uint32(g)*0x01010101) {
						t.Error("other bytes")
					}
					if p, err := b.sys.lookup(m.Addr()); err != nil || p.Device != d {
						t.Error(p, err)
					}
					if err := errors.Join(s.Close(), m.Close(), m.Close()); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		wg.Wait()
	})
}

func wordsOf(t *testing.T, s *Stream, m *Memory, value byte) []uint32 {
	if err := s.Set(m.Addr(), value, m.Bytes()); err != nil {
		t.Error(err)
	}
	return words(t, s, m.Addr(), int(m.Bytes()/4))
}

func TestArgs(t *testing.T) {
	a := new(Args).Uint32(1).Uint64(2).Float32(1).Int32(-1).Struct([]byte{9}, 1).Uint64(3)
	want := "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x02\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x80\x3f" + "\xff\xff\xff\xff" + "\x09\x00\x00\x00\x00\x00\x00\x00" + "\x03\x00\x00\x00\x00\x00\x00\x00"
	if string(a.b) != want {
		t.Errorf("%x, want %x", a.b, want)
	}
	if len(a.Reset().b) != 0 {
		t.Error("not empty")
	}
}

func TestQueriesDoNotAllocate(t *testing.T) {
	d := must[[]*Device](t)(emulatedSystem(t, CUDA).all())[0]
	s, err := d.NewStream(Normal)
	closing(t, s, err)
	e, err := d.NewEvent()
	closing(t, e, err)
	if n := testing.AllocsPerRun(100, func() {
		_, _ = s.Done()
		_, _ = e.Done()
		_ = e.Record(s)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestUUID(t *testing.T) {
	if got := uuid([16]byte{0xab, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}); got != "GPU-ab010203-0405-0607-0809-0a0b0c0d0e0f" {
		t.Error(got)
	}
	if got := uuid([16]byte([]byte("1a2b3c4d5e6f7081"))); got != "GPU-1a2b3c4d5e6f7081" {
		t.Error(got)
	}
}
