// SPDX-License-Identifier: MIT

package device

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestPeers(t *testing.T) {
	each(t, 2, func(t *testing.T, b *bench) {
		x, y := b.devices[0], b.devices[1]
		const n = 1 << 20
		mx, err := x.Alloc(n)
		closing(t, mx, err)
		my, err := y.Alloc(n)
		closing(t, my, err)
		sx, err := x.NewStream(Normal)
		closing(t, sx, err)
		sy, err := y.NewStream(Normal)
		closing(t, sy, err)
		ok(t, sx.Set(mx.Addr(), 7, n))
		ok(t, sx.CopyPeer(my.Addr(), y, mx.Addr(), x, n))
		e, err := x.NewEvent()
		closing(t, e, err)
		ok(t, e.Record(sx))
		ok(t, sy.After(e))
		if !all(words(t, sy, my.Addr(), n/4), 0x07070707) {
			t.Error("the peer has other bytes")
		}
		if !must[Reach](t)(x.Reach(y)).Access {
			t.Skip("they do not reach each other")
		}
		for range 2 {
			ok(t, x.EnablePeer(y))
			ok(t, y.EnablePeer(x))
		}
		module, err := x.Load(b.image)
		closing(t, module, err)
		fill := must[*Function](t)(module.Function("fill"))
		ok(t, fill.Launch(sx, Grid{Blocks: [3]uint32{8}, Threads: [3]uint32{128}}, new(Args).Uint64(my.Addr()).Uint32(n/4).Uint32(99)))
		settle(t, sx)
		if !all(words(t, sy, my.Addr(), n/4), 99) {
			t.Error("a kernel did not write to the peer")
		}
	})
}

func TestNoPeer(t *testing.T) {
	t.Setenv("FAKE_GPU_COUNT", "3")
	for _, v := range []Vendor{CUDA, HIP} {
		devices := must[[]*Device](t)(emulatedSystem(t, v).all())
		if r := must[Reach](t)(devices[0].Reach(devices[2])); r.Access || r.Atomics {
			t.Errorf("%+v", r)
		}
		if err := devices[0].EnablePeer(devices[2]); !errors.Is(err, ErrNoPeer) {
			t.Error(err)
		}
	}
	a := must[[]*Device](t)(emulatedSystem(t, CUDA).all())
	b := must[[]*Device](t)(emulatedSystem(t, HIP).all())
	if r := must[Reach](t)(a[0].Reach(b[0])); r.Access {
		t.Error("vendors reach each other")
	}
	if err := a[0].EnablePeer(b[0]); !errors.Is(err, ErrNoPeer) {
		t.Error(err)
	}
}

func TestModule(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		for _, d := range b.devices {
			m, err := d.Load(b.image)
			closing(t, m, err)
			fill := must[*Function](t)(m.Function("fill"))
			if n := must[int](t)(fill.MaxThreads()); n < 128 {
				t.Error(n, "threads")
			}
			if n := must[int](t)(fill.Registers()); n == 0 {
				t.Error(n, "registers")
			}
			ok(t, fill.SetShared(d.MaxShared-1024))
			buf, err := d.Alloc(4096)
			closing(t, buf, err)
			s, err := d.NewStream(Normal)
			closing(t, s, err)
			args := new(Args).Uint64(buf.Addr()).Uint32(1024).Uint32(12345)
			ok(t, fill.Launch(s, Grid{Blocks: [3]uint32{4}, Threads: [3]uint32{128}, Shared: uint32(d.MaxShared - 1024)}, args))
			if !all(words(t, s, buf.Addr(), 1024), 12345) {
				t.Error("the kernel wrote something else")
			}
			v := must[Variable](t)(m.Variable("state"))
			if v.Addr == 0 || v.Bytes != 64 {
				t.Errorf("%+v", v)
			}
			if _, err := m.Function("no_such"); !errors.Is(err, ErrNoSymbol) || !strings.Contains(err.Error(), `"no_such"`) {
				t.Error(err)
			}
			if _, err := m.Variable("no_such"); !errors.Is(err, ErrNoSymbol) {
				t.Error(err)
			}
			if err := fill.Launch(s, Grid{Threads: [3]uint32{4096}}, args); !errors.Is(err, ErrInvalid) {
				t.Error(err)
			}
		}
	})
}

func TestBadModule(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		_, err := b.devices[0].Load([]byte("this is no code"))
		if !errors.Is(err, ErrImage) {
			t.Fatal(err)
		}
		if b.devices[0].Vendor == CUDA && b.sys != here && !strings.Contains(err.Error(), "what is this") {
			t.Error("the compiler's log is lost:", err)
		}
		newer := []byte(".version 99.0\n.target sm_80\n.address_size 64\n")
		if b.sys != here {
			newer = []byte("old")
		}
		if _, err := b.devices[0].Load(newer); !errors.Is(err, ErrImage) {
			t.Error(err)
		} else {
			t.Log(err)
		}
	})
}

func TestEvents(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		d := b.devices[0]
		s, err := d.NewStream(Normal)
		closing(t, s, err)
		m, err := d.Alloc(1 << 26)
		closing(t, m, err)
		from, err := d.NewTimer()
		closing(t, from, err)
		to, err := d.NewTimer()
		closing(t, to, err)
		ok(t, from.Record(s))
		ok(t, s.Set(m.Addr(), 1, m.Bytes()))
		ok(t, to.Record(s))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		ok(t, to.Wait(ctx))
		if done := must[bool](t)(from.Done()); !done {
			t.Error("a later event happened first")
		}
		if took := must[time.Duration](t)(to.Since(from)); took <= 0 || took > 10*time.Second {
			t.Error(took)
		}
		plain, err := d.NewEvent()
		closing(t, plain, err)
		if _, err := plain.Since(from); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	})
}

func TestWaitIsBounded(t *testing.T) {
	for _, v := range []Vendor{CUDA, HIP} {
		d := must[[]*Device](t)(emulatedSystem(t, v).all())[0]
		s, err := d.NewStream(Normal)
		closing(t, s, err)
		e, err := d.NewEvent()
		closing(t, e, err)
		t.Setenv("FAKE_GPU", "cuStreamQuery=600,hipStreamQuery=600,cuEventQuery=600,hipEventQuery=600")
		for _, wait := range []func(context.Context) error{s.Wait, e.Wait} {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			err := wait(ctx)
			cancel()
			if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), d.String()) {
				t.Error(err)
			}
		}
		t.Setenv("FAKE_GPU", "cuStreamQuery=719,hipStreamQuery=719")
		if err := s.Wait(context.Background()); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		t.Setenv("FAKE_GPU", "")
		ok(t, s.Wait(context.Background()))
	}
}
