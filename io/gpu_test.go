// SPDX-License-Identifier: MIT

package io

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"mori/core/config"
	"mori/core/device"
	"mori/native/gpu/gputest"
)

// gpus returns the devices. It skips the test if there are fewer than n.
func gpus(t *testing.T, n int) []*device.Device {
	t.Helper()
	gputest.Need(t, n)
	all, err := device.Devices()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A place is memory to register: GPU memory, or host memory if it has no device.
type place struct {
	dev  *device.Device
	addr uint64
	host []byte
	size int
}

func onHost(t *testing.T, size int) *place {
	b, addr := buffer(t, size)
	return &place{addr: addr, host: b, size: size}
}

func onGPU(t *testing.T, d *device.Device, size int) *place {
	t.Helper()
	m, err := d.Alloc(uint64(size))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, m.Close()) })
	return &place{dev: d, addr: m.Addr(), size: size}
}

// move copies bytes between the place and b.
func (p *place) move(t *testing.T, b []byte, out bool) {
	t.Helper()
	if p.dev == nil {
		if out {
			copy(b, p.host)
		} else {
			copy(p.host, b)
		}
		return
	}
	between, err := p.dev.AllocHost(uint64(p.size))
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.dev.NewStream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	if !out {
		copy(bytesAt(between.Addr(), p.size), b)
		err = s.Copy(p.addr, between.Addr(), uint64(p.size))
	} else {
		err = s.Copy(between.Addr(), p.addr, uint64(p.size))
	}
	closed(t, errors.Join(err, s.Wait(deadline(t)), s.Close()))
	if out {
		copy(b, bytesAt(between.Addr(), p.size))
	}
	closed(t, between.Close())
}

func (p *place) put(t *testing.T, b []byte) { t.Helper(); p.move(t, b, false) }

func (p *place) get(t *testing.T) []byte {
	t.Helper()
	b := make([]byte, p.size)
	p.move(t, b, true)
	return b
}

func (p *place) register(t *testing.T, e *Engine) MemoryDesc {
	t.Helper()
	loc, ordinal := LocCPU, -1
	if p.dev != nil {
		loc, ordinal = LocGPU, p.dev.Ordinal
	}
	d, err := e.RegisterMemory(p.addr, uint64(p.size), ordinal, loc)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// newEngineWith returns an engine with backends. It closes when the test ends, before anything that
// was created earlier.
func newEngineWith(t *testing.T, key string, kinds ...BackendType) *Engine {
	t.Helper()
	e, err := NewEngine(key, EngineConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, e.Close()) })
	for _, kind := range kinds {
		if err := e.CreateBackend(kind, nil); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func TestRegistrationAsksTheDriver(t *testing.T) {
	all := gpus(t, 1)
	last := all[len(all)-1]
	on, other := last.Ordinal, last.Ordinal+1
	if len(all) > 1 {
		other = all[0].Ordinal
	}
	m := onGPU(t, last, 1<<20)
	h := onHost(t, 4096)
	e := newEngineWith(t, "a", BackendTCP)
	for _, c := range []struct {
		name       string
		addr, size uint64
		ordinal    int
		loc        MemoryLocation
		want       string
	}{
		{"of another GPU", m.addr, 4096, other, LocGPU, fmt.Sprintf("as memory of GPU %d, but it is memory of %v", other, last)},
		{"past its end", m.addr, 1<<20 + 1, on, LocGPU, fmt.Sprintf("outside of the allocation of %d bytes at %#x", 1<<20, m.addr)},
		{"a sub-region past its end", m.addr + 4096, 1 << 20, on, LocGPU, "outside of the allocation"},
		{"host memory as a GPU's", h.addr, 4096, 0, LocGPU, "the driver reports host memory; register it with location CPU"},
		{"a GPU's as host memory", m.addr, 4096, -1, LocCPU, fmt.Sprintf("register it with location GPU and device %d", on)},
	} {
		if _, err := e.RegisterMemory(c.addr, c.size, c.ordinal, c.loc); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, c := range []struct {
		name    string
		ordinal int
		loc     MemoryLocation
	}{{"as what it is", on, LocGPU}, {"of any GPU", -1, LocGPU}, {"anywhere", -1, LocUnknown}, {"anywhere on a GPU", on, LocUnknown}} {
		d, err := e.RegisterMemory(m.addr+4096, 4096, c.ordinal, c.loc)
		if err != nil || d.Loc != LocGPU || d.DeviceID != on || d.DeviceBusID != last.BusID || d.NUMANode != -1 || d.Data != m.addr+4096 || !(d.IPCHandle == [64]byte{}) {
			t.Errorf("%s: %+v, %v", c.name, d, err)
		}
	}
	if d, err := e.RegisterMemory(h.addr, 4096, -1, LocUnknown); err != nil || d.Loc != LocUnknown || d.DeviceID != -1 || d.DeviceBusID != "" {
		t.Errorf("host memory anywhere: %+v, %v", d, err)
	}
	if n := len(e.regions.All()); n != 5 {
		t.Errorf("%d regions", n)
	}
}

// eachPair runs f for each backend, with GPU memory at one end or both.
func eachPair(t *testing.T, backends []BackendType, f func(t *testing.T, kind BackendType, local, remote *place)) {
	const size = 1<<20 + 4096
	for _, kind := range backends {
		for _, ends := range [][2]string{{"gpu", "gpu"}, {"gpu", "host"}, {"host", "gpu"}} {
			if kind == BackendXGMI && ends != [2]string{"gpu", "gpu"} {
				continue
			}
			t.Run(fmt.Sprintf("%v/%s to %s", kind, ends[0], ends[1]), func(t *testing.T) {
				all := gpus(t, 1)
				make := func(what string, d *device.Device) *place {
					if what == "host" {
						return onHost(t, size)
					}
					return onGPU(t, d, size)
				}
				f(t, kind, make(ends[0], all[0]), make(ends[1], all[len(all)-1]))
			})
		}
	}
}

func TestGPUMemoryGoesEveryWay(t *testing.T) {
	eachPair(t, []BackendType{BackendRDMA, BackendTCP, BackendXGMI}, func(t *testing.T, kind BackendType, local, remote *place) {
		a, b := newEngineWith(t, "a", kind), newEngineWith(t, "b", kind)
		l, r := local.register(t, a), remote.register(t, b)
		if err := errors.Join(a.RegisterRemoteEngine(b.Desc()), b.RegisterRemoteEngine(a.Desc())); err != nil {
			t.Fatal(err)
		}
		s, err := a.CreateSession(l, r)
		if err != nil || s == nil {
			t.Fatalf("session %v, %v", s, err)
		}
		out, in := make([]byte, local.size), make([]byte, remote.size)
		fill(out, 1)
		fill(in, 2)
		local.put(t, out)
		remote.put(t, in)
		n := uint64(local.size)

		succeed(t, s.Read([]uint64{0}, []uint64{0}, []uint64{n}, a.AllocateTransferUID()))
		if !bytes.Equal(local.get(t), in) {
			t.Fatal("read bytes differ")
		}
		local.put(t, out)
		var lo, ro, sz []uint64
		for at := uint64(0); at < n; at += 4096 {
			lo, ro, sz = append(lo, at), append(ro, n-4096-at), append(sz, 4096)
		}
		uid := a.AllocateTransferUID()
		succeed(t, s.Write(lo, ro, sz, uid))
		got := remote.get(t)
		for i := range lo {
			if !bytes.Equal(got[ro[i]:ro[i]+4096], out[lo[i]:lo[i]+4096]) {
				t.Fatalf("block %d of a write differs", i)
			}
		}
		if kind == BackendXGMI {
			if b.PopInbound("a", uid) {
				t.Error("XGMI tells of arrivals")
			}
		} else {
			arrived(t, b, "a", uid)
		}
		d := s.Describe()
		if want := map[BackendType]string{BackendRDMA: "p2p", BackendXGMI: "p2p", BackendTCP: "tcp"}[kind]; !strings.HasPrefix(d.Path, want) || d.Backend != kind.String() {
			t.Errorf("over %q of %s, want %s: %v", d.Path, d.Backend, want, d.Reasons)
		}
		if err := a.DeregisterMemory(l); err != nil {
			t.Error(err)
		}
		if st := s.Write(lo, ro, sz, 0); st.Code() != CodeErrNotFound {
			t.Errorf("from memory that was deregistered: %v %s", st.Code(), st.Message())
		}
	})
}

// TestAGPUPathFailsAndHeals checks that pairs of GPU memory move to the next transport and back,
// and that pairs of host memory are not affected.
func TestAGPUPathFailsAndHeals(t *testing.T) {
	all := gpus(t, 1)
	a, b := newEngineWith(t, "a", BackendRDMA), newEngineWith(t, "b", BackendRDMA)
	if err := a.RegisterRemoteEngine(b.Desc()); err != nil {
		t.Fatal(err)
	}
	session := func(local, remote *place) *Session {
		s, err := a.CreateSession(local.register(t, a), remote.register(t, b))
		if err != nil || s == nil {
			t.Fatalf("session %v, %v", s, err)
		}
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8}, a.AllocateTransferUID()))
		return s
	}
	from, to := onGPU(t, all[0], 8192), onGPU(t, all[0], 8192)
	gpu, host := session(from, to), session(onHost(t, 64), onHost(t, 64))
	hostPlan := host.plan.Load()
	if d := gpu.Describe(); !strings.HasPrefix(d.Path, "p2p") {
		t.Fatalf("%+v", d)
	}

	want := make([]byte, 8192)
	fill(want, 5)
	from.put(t, want)
	for _, tr := range b.backends.Transports() {
		for _, c := range tr.Conns() {
			if tr.Name() == "p2p" {
				c.Close()
			}
		}
	}
	until(t, "the path over p2p is closed", func() bool { return gpu.plan.Load().path.Err() != nil })
	succeed(t, gpu.Write([]uint64{0}, []uint64{0}, []uint64{8192}, a.AllocateTransferUID()))
	if d := gpu.Describe(); !strings.HasPrefix(d.Path, "shm") || !bytes.Equal(to.get(t), want) {
		t.Errorf("after p2p broke: %+v", d)
	}
	for end := time.Now().Add(15 * time.Second); !strings.HasPrefix(gpu.Describe().Path, "p2p"); time.Sleep(10 * time.Millisecond) {
		succeed(t, gpu.Write([]uint64{0}, []uint64{0}, []uint64{8}, a.AllocateTransferUID()))
		if time.Now().After(end) {
			t.Fatalf("it does not come back: %+v", gpu.Describe())
		}
	}
	succeed(t, host.Write([]uint64{0}, []uint64{0}, []uint64{8}, a.AllocateTransferUID()))
	if host.plan.Load() != hostPlan {
		t.Error("the path of host memory was changed")
	}
	var paths []string
	for _, p := range a.Describe().Peers[0].Paths {
		paths = append(paths, p.Memory+" "+p.Path)
	}
	if told := strings.Join(paths, ", "); !strings.Contains(told, "gpu p2p") || !strings.Contains(told, "host shm") {
		t.Error(told)
	}
}

// TestWithoutP2P checks that GPU memory is staged through pinned memory, and that the reason is
// reported.
func TestWithoutP2P(t *testing.T) {
	all := gpus(t, 1)
	for filter, want := range map[string]string{"^p2p": "shm", "tcp": "tcp"} {
		setEnv(t, map[string]string{config.FabricProvider: filter})
		a, b := newEngineWith(t, "a", BackendRDMA), newEngineWith(t, "b", BackendRDMA)
		if err := a.RegisterRemoteEngine(b.Desc()); err != nil {
			t.Fatal(err)
		}
		from, to := onGPU(t, all[0], 8192), onGPU(t, all[len(all)-1], 8192)
		s, err := a.CreateSession(from.register(t, a), to.register(t, b))
		if err != nil || s == nil {
			t.Fatalf("session %v, %v", s, err)
		}
		bits := make([]byte, 8192)
		fill(bits, 8)
		from.put(t, bits)
		succeed(t, s.Write([]uint64{0}, []uint64{0}, []uint64{8192}, 0))
		if d := s.Describe(); !strings.HasPrefix(d.Path, want) || !strings.Contains(strings.Join(d.Reasons, "; "), "p2p is not available") || !bytes.Equal(to.get(t), bits) {
			t.Errorf("%s: %+v", filter, d)
		}
		e := newEngineWith(t, "c")
		if err := e.CreateBackend(BackendXGMI, nil); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "p2p is not available") {
			t.Errorf("XGMI without p2p: %v", err)
		}
	}
}
