// SPDX-License-Identifier: MIT

package verbs

import (
	"fmt"
	"golang.org/x/sys/unix"
	"log/slog"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/provider/internal/pathbase"
	"mori/native/verbs"
)

// A gpuMemory registers GPU memory with NICs. There are two ways:
//
//   - dma-buf: the GPU's driver makes a descriptor, which the NIC's kernel driver imports.
//   - peer memory: the NIC's kernel driver gets the address, and a module (nvidia_peermem) finds
//     the pages.
//
// A host may support either, both or neither, which only an attempt shows. Each registration tries
// both, because a module may be loaded later.
type gpuMemory struct {
	dev  *device.Device
	ways []gpuWay // in order of preference
	last string
}

// A gpuWay is one way to register GPU memory with a NIC.
type gpuWay struct {
	name string
	pin  func(d *device.Device, n *nic, at, length uint64, rights verbs.Access) (verbs.MR, verbs.Keys, error)
}

var (
	byDMABuf = gpuWay{"by dma-buf", pinDMABuf}
	byPeer   = gpuWay{"by peer memory", pinPeer}
)

// gpuOf returns nil for host memory.
func gpuOf(buf fabric.Buffer, dmabufFirst bool) (*gpuMemory, error) {
	if buf.Kind == fabric.MemHost {
		return nil, nil
	}
	d, err := pathbase.DeviceOf(buf)
	if err != nil {
		return nil, fmt.Errorf("register GPU memory with NICs: %w", err)
	}
	if dmabufFirst {
		return &gpuMemory{dev: d, ways: []gpuWay{byDMABuf, byPeer}}, nil
	}
	return &gpuMemory{dev: d, ways: []gpuWay{byPeer, byDMABuf}}, nil
}

// pin tries the ways in order. The error says why each failed.
func (g *gpuMemory) pin(n *nic, at, length uint64, rights verbs.Access) (verbs.MR, verbs.Keys, error) {
	var whys [2]error
	for i, w := range g.ways {
		h, k, err := w.pin(g.dev, n, at, length, rights|verbs.AccessLocalWrite)
		if err == nil {
			g.last = w.name
			return h, k, nil
		}
		whys[i] = fmt.Errorf("%s: %w", w.name, err)
	}
	return 0, verbs.Keys{}, fmt.Errorf("%w; %w", whys[0], whys[1])
}

func pinPeer(_ *device.Device, n *nic, at, length uint64, rights verbs.Access) (verbs.MR, verbs.Keys, error) {
	return n.pd.RegMR(at, length, at, rights)
}

// pinDMABuf closes the descriptor, since the NIC's driver holds its own reference.
func pinDMABuf(d *device.Device, n *nic, at, length uint64, rights verbs.Access) (verbs.MR, verbs.Keys, error) {
	fd, offset, err := d.ExportDmaBuf(at, length)
	if err != nil {
		return 0, verbs.Keys{}, err
	}
	defer func() { logged(n.log, "close a dma-buf", unix.Close(fd)) }()
	return n.pd.RegDmabuf(offset, length, at, fd, rights)
}

// explain adds to err what failed and where to look.
func (g *gpuMemory) explain(err error, n *nic, size uint64) error {
	return fmt.Errorf("register %d bytes of %v with %s: %w; mori doctor says what the host needs", size, g.dev, n.name, err)
}

// logChoice logs which way succeeded.
func (g *gpuMemory) logChoice(log *slog.Logger, size uint64) {
	if g != nil {
		log.Debug("verbs: NICs access GPU memory", "bytes", size, "device", g.dev, "how", g.last)
	}
}
