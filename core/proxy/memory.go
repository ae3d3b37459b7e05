// SPDX-License-Identifier: MIT

package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mori/core/device"
	"mori/core/internal/sys"
)

// A Memory is the location of a queue.
type Memory interface {
	// shared allocates zeroed memory that both sides access.
	shared(n int) (span, error)

	// private allocates n bytes for the kernels' side. They start with what fill returns for their
	// address; the rest is zero.
	private(n int, fill func(at uint64) []byte) (span, error)

	// hold prevents providers from waiting for kernels when they access this side's memory, until
	// release.
	hold() (release func() error, err error)
}

// A span is memory that is freed once.
type span struct {
	host, device uint64
	free         func() error
}

// OnHost returns host memory, for kernels built for the CPU and for tests.
func OnHost() Memory { return hostMemory{} }

type hostMemory struct{}

func (hostMemory) shared(n int) (span, error) {
	b, err := sys.Alloc(n)
	if err != nil {
		return span{}, err
	}
	at := sys.AddrOf(b)
	return span{at, at, func() error { return sys.Free(b) }}, nil
}

func (m hostMemory) private(n int, fill func(at uint64) []byte) (span, error) {
	s, err := m.shared(n)
	if err == nil {
		copy(sys.Bytes(s.device, n), fill(s.device))
	}
	return s, err
}

func (hostMemory) hold() (release func() error, err error) { return func() error { return nil }, nil }

// OnGPU returns memory for kernels of a GPU: the ring is in pinned host memory, and the words that
// only kernels use are in GPU memory.
func OnGPU(d *device.Device) Memory { return gpuMemory{d} }

type gpuMemory struct{ d *device.Device }

func (m gpuMemory) shared(n int) (span, error) {
	h, err := m.d.AllocHost(uint64(n))
	if err != nil {
		return span{}, err
	}
	clear(sys.Bytes(h.Addr(), n))
	return span{h.Addr(), h.DeviceAddr(), h.Close}, nil
}

func (m gpuMemory) hold() (release func() error, err error) { return m.d.Hold() }

// fillTime bounds the copy of a queue's words to a GPU.
const fillTime = 30 * time.Second

func (m gpuMemory) private(n int, fill func(at uint64) []byte) (_ span, err error) {
	own, err := m.d.Alloc(uint64(n))
	if err != nil {
		return span{}, err
	}
	from, err := m.d.AllocHost(uint64(n))
	if err != nil {
		return span{}, errors.Join(err, own.Close())
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	b := sys.Bytes(from.Addr(), n)
	clear(b)
	copy(b, fill(own.Addr()))
	s, err := m.d.NewStream(device.Normal)
	if err != nil {
		return span{}, errors.Join(err, own.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), fillTime)
	defer cancel()
	if err = s.Copy(own.Addr(), from.Addr(), uint64(n)); err == nil {
		err = s.Wait(ctx)
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return span{}, fmt.Errorf("fill %d bytes of a queue on %s: %w", n, m.d, errors.Join(err, own.Close()))
	}
	return span{0, own.Addr(), own.Close}, nil
}
