// SPDX-License-Identifier: MIT

package tcp_test

import (
	"testing"

	"mori/core/device/devicetest"
	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/provider/tcp"
	"mori/native/gpu/gputest"
)

func TestDevice(t *testing.T) {
	gputest.Need(t)
	fabrictest.TestDevice(t, open, devicetest.Places(t)...)
}

func TestDeviceChecked(t *testing.T) {
	gputest.Need(t)
	fabrictest.TestDevice(t, func(testing.TB) fabric.Provider { return tcp.New(tcp.Options{Links: 1, Sums: true}) }, devicetest.Places(t)[:1]...)
}

// TestDeviceIsOfferedToWhoAsks checks that only callers that ask get the capability and its rule.
func TestDeviceIsOfferedToWhoAsks(t *testing.T) {
	gputest.Need(t)
	p := tcp.New(tcp.Options{})
	for _, caps := range []fabric.Caps{0, fabric.CapRMA, fabric.CapRMA | fabric.CapHMEM} {
		infos := must[[]*fabric.Info](t)(p.GetInfo(t.Context(), "", "", &fabric.Info{Caps: caps, MRMode: fabric.MRHMEM}))
		for _, in := range infos {
			asked := caps&fabric.CapHMEM != 0
			if in.Caps&fabric.CapHMEM != 0 != asked || in.MRMode&fabric.MRHMEM != 0 != asked {
				t.Errorf("asked for %v: %v, rules %#x", caps, in.Caps, in.MRMode)
			}
		}
	}
	if _, err := p.GetInfo(t.Context(), "", "", &fabric.Info{Caps: fabric.CapRMA | fabric.CapHMEM}); err == nil {
		t.Error("device memory was offered to who does not register it")
	}
	s := newSide(t, p)
	buf, mem, err := deviceMemory(0, 4096)
	check(t, err)
	defer func() { check(t, mem.Close()) }()
	if _, err := s.dom.Reg(buf, fabric.AccessRemoteRead, fabric.RegionKey{ID: 3}); fabric.ErrnoOf(err) != fabric.ErrNotSupported {
		t.Errorf("a domain that was not asked for it took device memory: %v", err)
	}
}
