// SPDX-License-Identifier: MIT

package p2p

import (
	"errors"
	"math/rand/v2"
	"testing"

	"mori/core/device"
	"mori/core/internal/sys"
	"mori/native/gpu/gputest"
)

func firstDevice(t *testing.T) *device.Device {
	t.Helper()
	gputest.Need(t)
	all, err := device.Devices()
	ok(t, err)
	return all[0]
}

// pinnedNow fails the test unless devices reach exactly these bytes of a buffer, by pages.
func pinnedNow(t *testing.T, base uint64, want []int) {
	t.Helper()
	const page = 4096
	for i, users := range want {
		at, err := device.Lookup(base + uint64(i)*page + page/2)
		ok(t, err)
		if (at.Kind == device.Host) != (users > 0) {
			t.Fatalf("page %d is %v memory, with %d users", i, at.Kind, users)
		}
	}
}

// Regions overlap in any way; each byte is pinned as long as one of them needs it.
func TestPinsOverlap(t *testing.T) {
	d := firstDevice(t)
	const page, pages = 4096, 40
	b, err := sys.Alloc(page * pages)
	ok(t, err)
	defer func() { ok(t, sys.Free(b)) }()
	base := sys.AddrOf(b)
	r := rand.New(rand.NewPCG(1, 2))
	type region struct {
		first, n int
		pinned   *pinned
	}
	for range 20 {
		var open []region
		users := make([]int, pages)
		for step := range 30 {
			if step%3 < 2 {
				first := r.IntN(pages)
				n := 1 + r.IntN(pages-first)
				p, err := pin(d, base+uint64(first)*page+uint64(r.IntN(page/2)), uint64(n-1)*page+page/2) // of all of these pages a part
				ok(t, err)
				open = append(open, region{first, n, p})
				for i := range n {
					users[first+i]++
				}
			} else {
				i := r.IntN(len(open))
				g := open[i]
				open = append(open[:i], open[i+1:]...)
				ok(t, g.pinned.release())
				// A range lives as long as any region needs a byte of it, which may be longer than
				// this one's.
				for i := range g.n {
					users[g.first+i]--
				}
			}
			for _, g := range open {
				pinnedNow(t, base+uint64(g.first)*page, users[g.first:g.first+g.n])
			}
		}
		for _, g := range open {
			ok(t, g.pinned.release())
		}
		pinnedNow(t, base, make([]int, pages))
	}
	if len(pins.all) != 0 {
		t.Errorf("%d ranges are left", len(pins.all))
	}
}

// Memory that somebody else pinned stays theirs, if all of it is.
func TestPinnedByOthers(t *testing.T) {
	d := firstDevice(t)
	h, err := d.AllocHost(8192)
	ok(t, err)
	p, err := pin(d, h.Addr()+100, 8000)
	ok(t, err)
	if len(p.ranges) != 0 || h.Addr()+100+p.shift != h.DeviceAddr()+100 {
		t.Errorf("%d ranges, shifted by %d", len(p.ranges), p.shift)
	}
	ok(t, errors.Join(p.release(), h.Close()))

	b, err := sys.Alloc(8192)
	ok(t, err)
	defer func() { ok(t, sys.Free(b)) }()
	theirs, err := d.RegisterHost(sys.AddrOf(b), 4096)
	ok(t, err)
	if p, err := pin(d, sys.AddrOf(b), 8192); !errors.Is(err, device.ErrDuplicate) {
		t.Errorf("half of it: %+v, %v", p, err)
	}
	ok(t, theirs.Close())
	if len(pins.all) != 0 {
		t.Errorf("%d ranges are left", len(pins.all))
	}
}
