// SPDX-License-Identifier: MIT

package heap

import (
	"context"
	"errors"
	"fmt"
	"os"

	"mori/core/device"
	"mori/core/memory"
	"mori/shmem/internal/access"
	"mori/shmem/internal/peers"
)

// A virtualPart reserves addresses up to its limit and backs them with memory chunk by chunk. Other
// processes import each chunk through a file descriptor.
type virtualPart struct {
	g      *access.GPU
	share  *memory.Sharer
	v      *device.Virtual
	limit  uint64
	chunks chunks
	shared []sharedChunk
}

// A sharedChunk describes a chunk to other PEs.
type sharedChunk struct {
	File   *os.File `json:"-"`
	Ticket memory.Ticket
	Bytes  uint64
}

// chunks is the memory that backs reserved addresses, contiguous from the start.
type chunks struct {
	room *device.Range
	maps []*device.Mapping
	mem  []*device.Physical
	have uint64
}

// add maps a chunk of n bytes at the next addresses.
func (c *chunks) add(p *device.Physical, n uint64) error {
	m, err := c.room.Map(c.have, n, p)
	if err != nil {
		return errors.Join(err, p.Close())
	}
	c.maps, c.mem, c.have = append(c.maps, m), append(c.mem, p), c.have+n
	return nil
}

func (c *chunks) close() error {
	var errs []error
	for i := range c.maps {
		errs = append(errs, c.maps[i].Close(), c.mem[i].Close())
	}
	if c.room != nil {
		errs = append(errs, c.room.Close())
	}
	return errors.Join(errs...)
}

// newVirtualPart reserves limit bytes and maps size of them, zeroed.
func newVirtualPart(g *access.GPU, share *memory.Sharer, size, limit uint64) (*virtualPart, error) {
	v, err := g.Device.Virtual()
	if err != nil {
		return nil, err
	}
	p := &virtualPart{g: g, share: share, v: v, limit: limit}
	if p.chunks.room, err = v.Reserve(limit, 0); err != nil {
		return nil, err
	}
	if err = p.grow(size); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *virtualPart) addr() uint64 { return p.chunks.room.Addr() }

func (p *virtualPart) grow(size uint64) error {
	if size <= p.chunks.have {
		return nil
	}
	n := size - p.chunks.have
	mem, err := p.v.Create(n)
	if err != nil {
		return access.NoMemory(err)
	}
	file, err := mem.Export()
	if err != nil {
		return errors.Join(err, mem.Close())
	}
	c := sharedChunk{File: file, Bytes: n}
	at := p.addr() + p.chunks.have
	if c.Ticket, err = p.share.ShareFile(file); err != nil {
		return errors.Join(err, file.Close(), mem.Close())
	}
	p.shared = append(p.shared, c)
	if err = p.chunks.add(mem, n); err != nil {
		return err
	}
	return p.g.Clear(at, n)
}

func (p *virtualPart) offer(o *offer) error {
	o.Chunks = p.shared
	return nil
}

func (p *virtualPart) close() error {
	var errs []error
	for _, c := range p.shared {
		p.share.Unshare(c.Ticket)
		errs = append(errs, c.File.Close())
	}
	return errors.Join(append(errs, p.chunks.close())...)
}

// A virtualView is another PE's virtualPart, imported chunk by chunk.
type virtualView struct {
	v      *device.Virtual
	chunks chunks
	n      int // chunks
}

func openVirtualView(ctx context.Context, g *access.GPU, o *offer, limit uint64) (*virtualView, error) {
	v, err := g.Device.Virtual()
	if err != nil {
		return nil, err
	}
	view := &virtualView{v: v}
	if view.chunks.room, err = v.Reserve(limit, 0); err != nil {
		return nil, err
	}
	if err = view.follow(ctx, o); err != nil {
		return nil, errors.Join(err, view.close())
	}
	return view, nil
}

func (v *virtualView) addr() uint64 { return v.chunks.room.Addr() }

func (v *virtualView) follow(ctx context.Context, o *offer) error {
	for _, c := range o.Chunks[min(v.n, len(o.Chunks)):] {
		if c.Bytes == 0 || c.Bytes > v.chunks.room.Bytes()-v.chunks.have {
			return fmt.Errorf("the peer offers a chunk of %d bytes after %d of %d: %w", c.Bytes, v.chunks.have, v.chunks.room.Bytes(), peers.ErrMismatch)
		}
		file, err := memory.OpenFile(ctx, c.Ticket)
		if err != nil {
			return err
		}
		mem, err := v.v.Import(file)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
		if err = v.chunks.add(mem, c.Bytes); err != nil {
			return err
		}
		v.n++
	}
	return nil
}

func (v *virtualView) close() error { return v.chunks.close() }
