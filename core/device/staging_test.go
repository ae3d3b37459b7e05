// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"mori/core/internal/sys"
	"mori/native/gpu/gputest"
)

func TestStaging(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		r := rand.New(rand.NewPCG(1, 1))
		d := b.devices[0]
		p := newPool(t, d, r, StageBytes)
		s := d.OpenStaging()
		closing(t, s, nil)
		if again := d.OpenStaging(); again != s {
			t.Error("a device has two")
		}
		ok(t, s.Close())
		for range 3 {
			for _, n := range []uint64{1, smallStage, smallStage + 1, StageBytes} {
				buf := must[*StageBuffer](t)(s.Take(n, Outward))
				c := must[Copy](t)(buf.Copy([]CopySegment{{Dst: buf.DeviceAddr(), Src: p.mem.Addr(), Bytes: n}}))
				ok(t, c.Wait(bounded(t)))
				if got := sys.Bytes(buf.Addr(), int(n)); string(got) != string(p.model[:n]) {
					t.Errorf("%d bytes are others", n)
				}
				buf.Free()
			}
		}
		if _, err := s.Take(StageBytes+1, Inward); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
		if s.pinned != smallStage+StageBytes {
			t.Errorf("%d bytes are pinned", s.pinned)
		}
		s.rest()
		if s.pinned != 0 || s.copier != nil {
			t.Errorf("at rest %d bytes are pinned", s.pinned)
		}
	})
}

func TestStagingBounds(t *testing.T) {
	d := must[[]*Device](t)(emulatedSystem(t, CUDA).all())[0]
	s := d.OpenStaging()
	closing(t, s, nil)
	var out, in []*StageBuffer
	take := func(list *[]*StageBuffer, n uint64, to Outwardness) int {
		for {
			b, err := s.Take(n, to)
			if errors.Is(err, ErrBusy) {
				return len(*list)
			}
			ok(t, err)
			*list = append(*list, b)
		}
	}
	if n := take(&out, StageBytes, Outward); n != mostStaging/StageBytes/2 {
		t.Errorf("%d outward buffers", n)
	}
	if n := take(&in, StageBytes, Inward); n != mostStaging/StageBytes/2 {
		t.Errorf("%d inward buffers beside them", n)
	}
	for _, b := range in {
		b.Free()
	}
	in = nil
	if n := take(&in, 1, Inward); n != mostStaging/smallStage/2 { // the long ones make room
		t.Errorf("%d small buffers", n)
	}
	for i, b := range append(out, in...) {
		if i == 0 {
			ok(t, b.Lose())
			continue
		}
		b.Free()
	}
	if s.lent != 0 || s.outward != 0 || s.pinned != mostStaging-StageBytes {
		t.Errorf("%d lent, %d outward, %d pinned", s.lent, s.outward, s.pinned)
	}
}

func TestStagingWithoutPinnedMemory(t *testing.T) {
	d := must[[]*Device](t)(emulatedSystem(t, CUDA).all())[0]
	s := d.OpenStaging()
	closing(t, s, nil)
	t.Setenv("FAKE_GPU", "cuMemHostAlloc=2")
	if _, err := s.Take(1, Inward); !errors.Is(err, ErrNoMemory) || !strings.Contains(err.Error(), "ulimit -l") {
		t.Error(err)
	}
	t.Setenv("FAKE_GPU", "")
	b := must[*StageBuffer](t)(s.Take(1, Inward))
	t.Setenv("FAKE_GPU", "cuMemHostAlloc=2")
	if _, err := s.Take(1, Inward); !errors.Is(err, ErrBusy) {
		t.Errorf("beside one that will be free: %v", err)
	}
	b.Free()
}

// Where kernels wait for what comes through the Staging, nothing is asked of the driver that may
// wait for kernels: not by a first copy of any kind, and not after a rest.
func TestHeldStagingWaitsForNoKernel(t *testing.T) {
	d := must[[]*Device](t)(emulatedSystem(t, CUDA).all())[0]
	m := must[*Memory](t)(d.Alloc(StageBytes))
	closing(t, m, nil)
	release, err := d.Hold()
	ok(t, err)
	s := d.OpenStaging()
	s.rest()
	t.Setenv("FAKE_GPU", gputest.MayWait)
	if s.copier.opts.EngineFrom != 1 {
		t.Error("kernels copy, for which there may be no room beside those that wait")
	}
	for _, n := range []uint64{8, 4096, smallStage, smallStage + 1, StageBytes} {
		for _, pieces := range []uint64{1, 8, 200} {
			buf := must[*StageBuffer](t)(s.Take(n, Outward))
			var segs []CopySegment
			for i := range pieces {
				segs = append(segs, CopySegment{Dst: buf.DeviceAddr() + i*n/pieces, Src: m.Addr() + i*n/pieces, Bytes: n / pieces})
			}
			for range shortStreams {
				c := must[Copy](t)(buf.Copy(segs))
				ok(t, c.Wait(bounded(t)))
			}
			buf.Free()
		}
	}
	var all []*StageBuffer
	for _, to := range []Outwardness{Outward, Inward} {
		for _, n := range []uint64{1, StageBytes} {
			for {
				b, err := s.Take(n, to)
				if errors.Is(err, ErrBusy) {
					break
				}
				all = append(all, must[*StageBuffer](t)(b, err))
			}
		}
	}
	if len(all) != heldSmall+heldLong {
		t.Errorf("%d buffers are lent", len(all))
	}
	for _, b := range all {
		b.Free()
	}
	s.rest()
	if s.pinned != heldSmall*smallStage+heldLong*StageBytes || s.outward != 0 {
		t.Errorf("%d bytes are pinned, %d are outward", s.pinned, s.outward)
	}
	t.Setenv("FAKE_GPU", "")
	ok(t, release())
	s.rest()
	if s.pinned != 0 || s.copier != nil {
		t.Errorf("at rest %d bytes are pinned", s.pinned)
	}
	ok(t, s.Close())
}

func TestHoldWithoutPinnedMemory(t *testing.T) {
	d := must[[]*Device](t)(emulatedSystem(t, CUDA).all())[0]
	t.Setenv("FAKE_GPU", "cuMemHostAlloc=2")
	if _, err := d.Hold(); !errors.Is(err, ErrNoMemory) || !strings.Contains(err.Error(), "reserve the staging buffers of "+d.String()) {
		t.Error(err)
	}
	t.Setenv("FAKE_GPU", "")
	release, err := d.Hold()
	ok(t, err)
	ok(t, release())
}
