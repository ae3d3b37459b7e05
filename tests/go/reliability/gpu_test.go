// SPDX-License-Identifier: MIT

package reliability

import (
	"context"
	"strings"
	"time"

	"mori/core/device"
	mio "mori/io"
)

// copyTime bounds a copy between a region and the memory that is looked at.
const copyTime = 30 * time.Second

// onGPU has regions on a GPU, by its number from 1, or with 0 on the host of a process that sees
// GPUs. Emulated ones take their time.
func (a startArgs) onGPU(gpu int) startArgs {
	a.GPU, a.gpus = gpu, true
	a.env = append(a.env, "FAKE_GPU_SEED=7")
	return a
}

// byGPU demands that copies of a GPU carried what the peers moved, or some of it.
func (p *pair) byGPU() {
	p.t.Helper()
	var d mio.EngineInfo
	p.a.ask("describe", nil, &d)
	for _, peer := range d.Peers {
		for _, path := range peer.Paths {
			if path.Memory == "gpu" && strings.HasPrefix(path.Path, "p2p/") {
				return
			}
		}
	}
	p.t.Errorf("no path of GPU memory is by p2p: %+v", d.Peers)
}

// put makes the region hold mem.
func (r region) put() error {
	if r.gpu == nil {
		return nil
	}
	return r.copy(r.gpu.Addr(), r.mem.addr())
}

// get makes mem hold what the region holds.
func (r region) get() error {
	if r.gpu == nil {
		return nil
	}
	return r.copy(r.mem.addr(), r.gpu.Addr())
}

func (r region) copy(dst, src uint64) error {
	s, err := r.on.NewStream(device.Normal)
	if err != nil {
		return err
	}
	if err = s.Copy(dst, src, uint64(len(r.mem))); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), copyTime)
		defer cancel()
		err = s.Wait(ctx)
	}
	if closed := s.Close(); err == nil {
		err = closed
	}
	return err
}
