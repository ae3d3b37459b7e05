// SPDX-License-Identifier: MIT

package interchange

import (
	"context"
	"errors"

	"mori/core/device"
	"mori/core/internal/sys"
)

// A copier lets an emulated NIC at the memory of a GPU, while a kernel spins there: by a stream of its own, and pinned memory.
type copier struct {
	stream *device.Stream
	stage  block
}

// stageBytes go at a time. A NIC's packets are shorter.
const stageBytes = 64 << 10

func newCopier(g *gpu) (*copier, error) {
	s, err := g.d.NewStream(device.Urgent)
	if err != nil {
		return nil, err
	}
	stage, err := g.words(stageBytes)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &copier{s, stage}, nil
}

// warm copies some of a buffer out and in again before any kernel spins: drivers load what they copy with at the first copy, and may have
// that wait for kernels.
func (c *copier) warm(data block) error {
	b := make([]byte, min(data.n, stageBytes))
	if err := c.Read(data.addr, b); err != nil {
		return err
	}
	return c.Write(data.addr, b)
}

func (c *copier) copy(dst, src, n uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), defaultLimit)
	defer cancel()
	if err := c.stream.Copy(dst, src, n); err != nil {
		return err
	}
	return c.stream.Wait(ctx)
}

// Read is of emu.Memory.
func (c *copier) Read(addr uint64, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), stageBytes)
		if err := c.copy(c.stage.addr, addr, uint64(n)); err != nil {
			return err
		}
		copy(b[:n], sys.Bytes(c.stage.addr, n))
		addr, b = addr+uint64(n), b[n:]
	}
	return nil
}

// Write is of emu.Memory.
func (c *copier) Write(addr uint64, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), stageBytes)
		copy(sys.Bytes(c.stage.addr, n), b[:n])
		if err := c.copy(addr, c.stage.addr, uint64(n)); err != nil {
			return err
		}
		addr, b = addr+uint64(n), b[n:]
	}
	return nil
}

func (c *copier) close() error { return errors.Join(c.stream.Close(), c.stage.close()) }
