// SPDX-License-Identifier: MIT

package device

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"mori/core/internal/sys"
)

// A pool is memory of a device whose bytes are known.
type pool struct {
	mem   *Memory
	model []byte
}

func newPool(t *testing.T, d *Device, r *rand.Rand, n int) *pool {
	t.Helper()
	m, err := d.Alloc(uint64(n))
	closing(t, m, err)
	p := &pool{m, make([]byte, n)}
	for i := range p.model {
		p.model[i] = byte(r.Uint32())
	}
	h, err := d.AllocHost(uint64(n))
	closing(t, h, err)
	copy(sys.Bytes(h.Addr(), n), p.model)
	s, err := d.NewStream(Normal)
	closing(t, s, err)
	ok(t, s.Copy(m.Addr(), h.Addr(), uint64(n)))
	settle(t, s)
	return p
}

// check compares what the device has with the model.
func (p *pool) check(t *testing.T) {
	t.Helper()
	d := p.mem.dev
	h, err := d.AllocHost(uint64(len(p.model)))
	ok(t, err)
	s, err := d.NewStream(Normal)
	ok(t, err)
	ok(t, s.Copy(h.Addr(), p.mem.Addr(), uint64(len(p.model))))
	settle(t, s)
	if !bytes.Equal(sys.Bytes(h.Addr(), len(p.model)), p.model) {
		t.Errorf("%s has other bytes than the model", d)
	}
	ok(t, errors.Join(s.Close(), h.Close()))
}

// scatter lists segments of the sizes from one pool to the other, in any order, and makes their
// copies in the model. They use the share-th part of both pools of parts.
func scatter(r *rand.Rand, dst, src *pool, sizes []int, share, parts int) []CopySegment {
	var list []CopySegment
	room := len(dst.model) / parts
	at := share * room
	end := at + room
	for _, n := range sizes {
		gap := r.IntN(40)
		if at+gap+n > end {
			break
		}
		at += gap
		from := share*room + r.IntN(room-n+1)
		list = append(list, CopySegment{dst.mem.Addr() + uint64(at), src.mem.Addr() + uint64(from), uint64(n)})
		copy(dst.model[at:at+n], src.model[from:from+n])
		at += n
	}
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func copier(t *testing.T, d *Device, o CopierOptions) *Copier {
	t.Helper()
	c, err := d.NewCopier(o)
	closing(t, c, err)
	return c
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestCopier(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		d := b.devices[0]
		for _, c := range []struct {
			name string
			opts CopierOptions
		}{
			{"as it comes", CopierOptions{}},
			{"copy engines", CopierOptions{EngineFrom: 1}},
			{"kernel", CopierOptions{EngineFrom: 1 << 40, Blocks: 2}},
		} {
			t.Run(c.name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, 2))
				dst, src := newPool(t, d, r, 1<<20), newPool(t, d, r, 1<<20)
				k := copier(t, d, c.opts)
				if b.sys == here && c.opts.EngineFrom != 1 {
					ok(t, k.NoKernel())
				}
				for _, sizes := range [][]int{{}, {0}, {1}, {0, 5, 0}, {4096, 4096, 4096}, {300000}, {7, 1, 100000, 3, 64, 1000}} {
					list := scatter(r, dst, src, sizes, 0, 1)
					ok(t, must[Copy](t)(k.Start(list)).Wait(bounded(t)))
				}
				many := make([]int, 600) // more than the first list has room for
				for i := range many {
					many[i] = r.IntN(1000)
				}
				ok(t, must[Copy](t)(k.Start(scatter(r, dst, src, many, 0, 1))).Wait(bounded(t)))
				dst.check(t)
			})
		}
	})
}

// TestCopierDepth has as many copies under way as may be, of all kinds of lists, and asks in any
// order.
func TestCopierDepth(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		r := rand.New(rand.NewPCG(3, 4))
		d := b.devices[0]
		const depth = 3
		dst, src := newPool(t, d, r, 1<<20), newPool(t, d, r, 1<<20)
		k := copier(t, d, CopierOptions{Depth: depth, EngineFrom: 5000})
		for range 20 {
			var under []Copy
			for i := range depth {
				sizes := [][]int{{100, 200, 3000}, {100000}, {9, 9, 9}}[r.IntN(3)]
				under = append(under, must[Copy](t)(k.Start(scatter(r, dst, src, sizes, i, depth))))
			}
			if _, err := k.Start(nil); !errors.Is(err, ErrBusy) {
				t.Fatalf("one more: %v", err)
			}
			r.Shuffle(depth, func(i, j int) { under[i], under[j] = under[j], under[i] })
			for _, c := range under {
				ok(t, c.Wait(bounded(t)))
			}
			if done, err := under[0].Done(); !done || !errors.Is(err, ErrClosed) {
				t.Fatalf("asked again: %v, %v", done, err)
			}
		}
		dst.check(t)
	})
}

// TestCopierAfter lets a copy wait for what another stream does.
func TestCopierAfter(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		r := rand.New(rand.NewPCG(5, 6))
		d := b.devices[0]
		const n = 1 << 20
		dst, src := newPool(t, d, r, n), newPool(t, d, r, n)
		k := copier(t, d, CopierOptions{})
		s, err := d.NewStream(Normal)
		closing(t, s, err)
		e, err := d.NewEvent()
		closing(t, e, err)
		for i := range byte(10) {
			ok(t, s.Set(src.mem.Addr(), i, n))
			ok(t, e.Record(s))
			c := must[Copy](t)(k.Start([]CopySegment{{dst.mem.Addr(), src.mem.Addr(), n / 2}, {dst.mem.Addr() + n/2, src.mem.Addr() + n/2, n / 2}}, e))
			ok(t, c.Wait(bounded(t)))
			dst.model = bytes.Repeat([]byte{i}, n)
			dst.check(t)
		}
	})
}

func TestCopierClose(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		r := rand.New(rand.NewPCG(7, 8))
		d := b.devices[0]
		dst, src := newPool(t, d, r, 1<<20), newPool(t, d, r, 1<<20)
		k := copier(t, d, CopierOptions{})
		c := must[Copy](t)(k.Start(scatter(r, dst, src, []int{500000}, 0, 1)))
		ok(t, k.Close())
		dst.check(t) // Close waited
		if done, err := c.Done(); !done || !errors.Is(err, ErrClosed) {
			t.Errorf("Done after Close: %v, %v", done, err)
		}
		if _, err := k.Start(nil); !errors.Is(err, ErrClosed) {
			t.Errorf("Start after Close: %v", err)
		}
		ok(t, k.Close())
		if _, err := d.NewCopier(CopierOptions{Depth: -1}); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	})
}

// TestCopierFails lets calls of the driver fail.
func TestCopierFails(t *testing.T) {
	for _, v := range []Vendor{CUDA, HIP} {
		d := must[[]*Device](t)(emulatedSystem(t, v).all())[0]
		r := rand.New(rand.NewPCG(9, 10))
		dst, src := newPool(t, d, r, 1<<16), newPool(t, d, r, 1<<16)
		k := copier(t, d, CopierOptions{Depth: 2, EngineFrom: 1})
		list := scatter(r, dst, src, []int{100, 200}, 0, 1)
		ok(t, must[Copy](t)(k.Start(list)).Wait(bounded(t)))

		t.Setenv("FAKE_GPU", "cuMemcpyAsync=1,hipMemcpyAsync=1")
		if _, err := k.Start(list); err == nil || !strings.Contains(err.Error(), "MemcpyAsync") || !strings.Contains(err.Error(), d.String()) {
			t.Errorf("%v: refused copies: %v", v, err)
		}
		t.Setenv("FAKE_GPU", "")
		ok(t, must[Copy](t)(k.Start(list)).Wait(bounded(t)))

		for range 2 {
			c := must[Copy](t)(k.Start(list))
			t.Setenv("FAKE_GPU", "cuEventQuery=719,hipEventQuery=719")
			if err := c.Wait(bounded(t)); !errors.Is(err, ErrLost) {
				t.Errorf("%v: a lost device: %v", v, err)
			}
			t.Setenv("FAKE_GPU", "")
		}
		if _, err := k.Start(list); !errors.Is(err, ErrLost) {
			t.Errorf("%v: after two losses: %v", v, err)
		}
	}
}

func TestCopierDoesNotAllocate(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		r := rand.New(rand.NewPCG(11, 12))
		d := b.devices[0]
		dst, src := newPool(t, d, r, 1<<20), newPool(t, d, r, 1<<20)
		sizes := make([]int, 100)
		for i := range sizes {
			sizes[i] = 1000
		}
		list := scatter(r, dst, src, sizes, 0, 1)
		for _, from := range []uint64{0, 1} {
			k := copier(t, d, CopierOptions{EngineFrom: from})
			ctx := bounded(t)
			round := func() {
				c, err := k.Start(list)
				ok(t, err)
				ok(t, c.Wait(ctx))
			}
			for range shortStreams {
				round()
			}
			if n := testing.AllocsPerRun(20, round); n > 0 {
				t.Errorf("%v allocations a copy, kernel %v", n, k.kernel != nil)
			}
		}
	})
}

func TestCopyGrid(t *testing.T) {
	k := &copyKernel{warp: 32, threads: bulkThreads, shared: bulkShared}
	for _, c := range []struct {
		count           int
		total           uint64
		most            int
		blocks, threads uint32
		shared          bool
	}{
		{1, 1, 0, 1, 32, false},
		{1, 8 << 10, 0, 1, 32, false},
		{2, 64 << 10, 0, 1, 256, true},
		{16, 64<<10 + 1, 0, 2, 256, true},
		{8192, 32 << 20, 0, 32, 256, true},
		{8192, 32 << 20, 8, 8, 256, true},
		{32768, 16 << 20, 0, 64, 512, false},
		{32768, 16 << 20, 100, 100, 512, false},
	} {
		g := k.grid(c.count, c.total, c.most)
		if g.Blocks[0] != c.blocks || g.Threads[0] != c.threads || (g.Shared > 0) != c.shared {
			t.Errorf("%d segments of %d bytes: %+v", c.count, c.total, g)
		}
	}
}
