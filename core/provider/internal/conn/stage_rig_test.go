// SPDX-License-Identifier: MIT

package conn

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/native/gpu/gputest"
)

var kindOf = map[device.Vendor]fabric.MemKind{device.CUDA: fabric.MemCUDA, device.HIP: fabric.MemHIP}

// A stock is registered memory of the host or of a device, with a model of its contents.
type stock struct {
	rig   *rig
	dev   *device.Device // nil for host memory
	addr  uint64
	model []byte
	mr    fabric.MR
	key   fabric.RegionKey
}

var stocks uint64

// newStock allocates n bytes on the i-th device, or on the host if i is -1.
func newStock(r *rig, i, n int) *stock {
	r.Helper()
	stocks++
	s := &stock{rig: r, model: make([]byte, n), key: fabric.RegionKey{ID: stocks, Secret: [16]byte{5}}}
	buf := fabric.Buffer{Len: uint64(n)}
	if i < 0 {
		mem, err := sys.Alloc(n)
		r.must(err)
		r.Cleanup(func() { r.must(sys.Free(mem)) })
		s.addr = sys.AddrOf(mem)
	} else {
		all, err := device.Devices()
		r.must(err)
		s.dev = all[i%len(all)]
		m, err := s.dev.Alloc(uint64(n))
		r.must(err)
		r.Cleanup(func() { r.must(m.Close()) })
		s.addr, buf.Kind, buf.Device = m.Addr(), kindOf[s.dev.Vendor], s.dev.Ordinal
	}
	buf.Addr = s.addr
	mr, err := r.dom.Reg(buf, fabric.AccessRemoteRead|fabric.AccessRemoteWrite, s.key)
	r.must(err)
	r.Cleanup(func() { r.must(mr.Close()) })
	s.mr = mr
	return s
}

// noise returns random bytes.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, 4<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
})

// fill writes bytes that depend on seed.
func (s *stock) fill(seed int) {
	s.rig.Helper()
	for done := 0; done < len(s.model); {
		done += copy(s.model[done:], noise()[seed*7919+done%1000:])
	}
	s.move(func(host uint64, st *device.Stream) error {
		copy(sys.Bytes(host, len(s.model)), s.model)
		return st.Copy(s.addr, host, uint64(len(s.model)))
	})
	if s.dev == nil {
		copy(sys.Bytes(s.addr, len(s.model)), s.model)
	}
}

// check compares the memory with the model.
func (s *stock) check(what string) {
	s.rig.Helper()
	got := make([]byte, len(s.model))
	s.move(func(host uint64, st *device.Stream) error {
		return errors.Join(st.Copy(host, s.addr, uint64(len(got))), st.Wait(s.rig.ctx), func() error {
			copy(got, sys.Bytes(host, len(got)))
			return nil
		}())
	})
	if s.dev == nil {
		copy(got, sys.Bytes(s.addr, len(got)))
	}
	if !bytes.Equal(got, s.model) {
		for i := range got {
			if got[i] != s.model[i] {
				s.rig.Fatalf("%s: byte %d of %d is %#x, want %#x", what, i, len(got), got[i], s.model[i])
			}
		}
	}
}

// move calls fn with pinned memory of the stock's device, if it has one.
func (s *stock) move(fn func(host uint64, st *device.Stream) error) {
	s.rig.Helper()
	if s.dev == nil {
		return
	}
	h, err := s.dev.AllocHost(uint64(len(s.model)))
	s.rig.must(err)
	st, err := s.dev.NewStream(device.Normal)
	s.rig.must(err)
	s.rig.must(fn(h.Addr(), st))
	s.rig.must(st.Wait(context.Background()))
	s.rig.must(errors.Join(st.Close(), h.Close()))
}

// seg returns a local segment of the stock.
func (s *stock) seg(off, n uint64) fabric.Seg {
	return fabric.Seg{Addr: s.addr + off, Len: n, MR: s.mr.Desc()}
}

// devicePair connects two rigs whose domains accept device memory.
func devicePair(tb testing.TB, cfg Config) (a, b *rig) {
	tb.Helper()
	gputest.Need(tb)
	if cfg.Links == 0 {
		cfg.Links = 1
	}
	in := &fabric.Info{Caps: fabric.CapMSG | fabric.CapRMA | fabric.CapHMEM}
	a, b = newRigIn(tb, cfg, in), newRigIn(tb, cfg, in)
	join(a, b)
	return a, b
}

// do runs ops and returns the error of each completion, or nil.
func (r *rig) do(ops ...fabric.Op) []error {
	r.Helper()
	for i := range ops {
		ops[i].Ctx = uint64(i)
	}
	for left := ops; len(left) > 0; {
		n, err := r.ep.Submit(left)
		if err != nil && !errors.Is(err, fabric.ErrAgain) {
			r.Fatal(err)
		}
		left = left[n:]
	}
	return r.done(len(ops))
}

// done waits for n completions, whose contexts are 0 to n-1, and returns the error of each.
func (r *rig) done(n int) []error {
	r.Helper()
	errs := make([]error, n)
	for range n {
		var c [1]fabric.Completion
		k, err := r.cq.Wait(r.ctx, c[:])
		if errors.Is(err, fabric.ErrAvail) {
			var e fabric.ErrEntry
			r.must(r.cq.ReadErr(&e))
			errs[e.Ctx] = &e
			continue
		}
		r.must(err)
		if k == 1 {
			errs[c[0].Ctx] = nil
		}
	}
	return errs
}
