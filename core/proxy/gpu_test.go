// SPDX-License-Identifier: MIT

package proxy

import (
	"context"
	"path/filepath"
	"testing"

	"mori/core/config"
	"mori/core/device"
	"mori/core/internal/sys"
	"mori/native/abi"
	"mori/native/gpu/gputest"
)

// TestGPUPuts: the blocks of a GPU post at once through a small ring in pinned memory, and every
// byte is looked at.
func TestGPUPuts(t *testing.T) {
	gputest.Need(t)
	folder, err := filepath.Abs("../../python/mori/_kernels")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(config.KernelDir, folder)
	const count, bytes = 20_000, 24
	from := providers["shm"]()
	near, far := newEnd(t, from, count*bytes), newEnd(t, from, count*bytes)
	pattern(near.data, 8)
	all, err := device.Devices()
	near.must(err)
	d := all[0]
	q := near.queue(Config{Slots: 128, Memory: OnGPU(d)}, near, far)
	m, err := d.LoadKernels("proxy_put")
	near.must(err)
	defer func() { near.must(m.Close()) }()
	f, err := m.Function("mori_proxy_put")
	near.must(err)
	s, err := d.NewStream(device.Normal)
	near.must(err)
	defer func() { near.must(s.Close()) }()
	told, err := d.AllocHost(abi.ProxyPutOutcomeBytes)
	near.must(err)
	defer func() { near.must(told.Close()) }()
	out := &sys.Slice[abi.ProxyPutOutcome](told.Addr(), 1)[0]
	*out = abi.ProxyPutOutcome{}
	var args device.Args
	args.Uint64(q.Device()).Uint32(1).Uint32(0).Uint64(sys.AddrOf(near.data)).Uint64(bytes).Uint64(count).Uint64(told.DeviceAddr())
	near.must(f.Launch(s, device.Grid{Blocks: [3]uint32{16}, Threads: [3]uint32{64}}, &args))
	ctx, cancel := context.WithTimeout(context.Background(), 2*deadline)
	defer cancel()
	near.must(s.Wait(ctx))
	near.ran("put", *out)
	near.same("at the peer", far.data, near.data)
	if n := q.Stats().Commands; n != count {
		t.Errorf("%d commands for %d puts", n, count)
	}
}
