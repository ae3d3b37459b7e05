// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"os"
	"strings"
	"testing"

	"mori/core/internal/sys"
)

func addrOf(b []byte) uint64 { return sys.AddrOf(b) }

func sum(addr, n uint64) (total uint64) {
	for _, b := range sys.Bytes(addr, int(n)) {
		total += uint64(b)
	}
	return total
}

// importFD maps what descriptor 3 names.
func importFD(v *Virtual, n uint64) (*Mapping, *Range, func(), error) {
	f := os.NewFile(3, "memory of the other process")
	p, err := v.Import(f)
	if err != nil {
		return nil, nil, nil, err
	}
	r, err := v.Reserve(n, 0)
	if err != nil {
		return nil, nil, nil, errors.Join(err, p.Close())
	}
	m, err := r.Map(0, r.Bytes(), p)
	if err != nil {
		return nil, nil, nil, errors.Join(err, r.Close(), p.Close())
	}
	return m, r, func() { _ = errors.Join(m.Close(), r.Close(), p.Close(), f.Close()) }, nil
}

func TestVirtual(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		d := b.devices[0]
		v, err := d.Virtual()
		if !d.VMM && errors.Is(err, errors.ErrUnsupported) && strings.Contains(err.Error(), d.String()) {
			return
		}
		ok(t, err)
		n := v.Round(1 << 20)
		r, err := v.Reserve(2*n, 0)
		closing(t, r, err)
		p, err := v.Create(n)
		closing(t, p, err)
		others := b.devices[1:]
		for _, o := range others {
			if !must[Reach](t)(d.Reach(o)).Access {
				others = nil
			}
		}
		m, err := r.Map(n, n, p, others...)
		closing(t, m, err)
		s, err := d.NewStream(Normal)
		closing(t, s, err)
		ok(t, s.Set(r.Addr()+n, 3, n))
		if !all(words(t, s, r.Addr()+n, int(n/4)), 0x03030303) {
			t.Error("mapped memory has other bytes")
		}
		for _, o := range others {
			so, err := o.NewStream(Normal)
			closing(t, so, err)
			if !all(words(t, so, r.Addr()+n, 64), 0x03030303) {
				t.Errorf("%s sees other bytes", o)
			}
		}
		at := must[Pointer](t)(b.sys.lookup(r.Addr() + n))
		if at.Kind != OnDevice || at.Device != d {
			t.Errorf("%+v", at)
		}
		if d.Vendor == CUDA && (at.IPC || !at.FD) {
			t.Errorf("%+v", at)
		}
		if _, err := r.Map(2*n, n, p); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}

		f := must[*os.File](t)(p.Export())
		defer func() { ok(t, f.Close()) }()
		other := startPeer(t, b, f)
		got := other.ask(t, order{FD: true, Value: 9, N: n})
		if got.Error != "" || got.Sum != 3*n {
			t.Fatalf("the other process found a sum of %d, not %d: %s", got.Sum, 3*n, got.Error)
		}
		if !all(words(t, s, r.Addr()+n, int(n/4)), 0x09090909) {
			t.Error("the other process's bytes are not here")
		}
	})
}

func TestVirtualRefused(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		v, err := b.devices[0].Virtual()
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		ok(t, err)
		if _, err := v.Create(1 << 50); !errors.Is(err, ErrNoMemory) {
			t.Error(err)
		}
		f, w, err := os.Pipe()
		ok(t, err)
		defer func() { ok(t, errors.Join(f.Close(), w.Close())) }()
		if b.sys == here { // the fake takes any file
			if p, err := v.Import(f); err == nil {
				t.Error("a pipe was imported")
				ok(t, p.Close())
			}
		}
	})
}
