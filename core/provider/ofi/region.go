// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"encoding/binary"
	"fmt"
	"sync"

	"mori/core/fabric"
	lf "mori/native/libfabric"
)

// rawVersion and rawLen describe a region's portable form: version, key, address for ops, address
// in memory, size.
const (
	rawVersion = 1
	rawLen     = 1 + 4*8
)

// A region is a fabric.MR.
type region struct {
	domain *domain
	fid    lf.FID
	desc   fabric.MRDesc
	raw    []byte

	once sync.Once
	err  error
}

func (d *domain) Reg(buf fabric.Buffer, access fabric.Access, key fabric.RegionKey) (fabric.MR, error) {
	if err := d.Adopt(); err != nil {
		return nil, fmt.Errorf("register %d bytes: %w", buf.Len, err)
	}
	m, err := d.register(buf, access, key)
	if err != nil {
		d.Leave()
		return nil, err
	}
	return m, nil
}

func (d *domain) register(buf fabric.Buffer, access fabric.Access, key fabric.RegionKey) (*region, error) {
	switch {
	case buf.Kind != fabric.MemHost:
		return nil, fmt.Errorf("register %d bytes of device memory as host memory: %w", buf.Len, fabric.ErrNotSupported)
	case buf.Addr+buf.Len < buf.Addr, buf.Addr == 0 && buf.Len > 0:
		return nil, fmt.Errorf("register %d bytes at %#x: %w", buf.Len, buf.Addr, fabric.ErrInvalid)
	}
	rights := lf.Send | lf.Recv | lf.Read | lf.Write
	if access&fabric.AccessRemoteRead != 0 {
		rights |= lf.RemoteRead
	}
	if access&fabric.AccessRemoteWrite != 0 {
		rights |= lf.RemoteWrite
	}
	fid, err := lf.Register(d.fid, buf.Addr, buf.Len, rights, key.ID)
	if err != nil {
		return nil, fmt.Errorf("register %d bytes as region %d: %w", buf.Len, key.ID, cause(err))
	}
	m := &region{domain: d, fid: fid, desc: fabric.MRDesc(fid.Desc())}
	base := uint64(0)
	if d.offer.fi.MRMode&lf.MRVirtAddr != 0 {
		base = buf.Addr
	}
	m.raw = append(m.raw, rawVersion)
	for _, v := range [...]uint64{fid.Key(), base, buf.Addr, buf.Len} {
		m.raw = binary.BigEndian.AppendUint64(m.raw, v)
	}
	return m, nil
}

// Desc returns libfabric's descriptor, if it requires registered local buffers.
func (m *region) Desc() fabric.MRDesc { return m.desc }

// Raw returns the key and the addresses in portable form.
func (m *region) Raw() []byte { return m.raw }

// Close deregisters the region from libfabric; see fabric.MR, and doc.go for what it does not wait
// for.
func (m *region) Close() error {
	m.once.Do(func() {
		g := m.domain.network.engine
		g.polling.Lock()
		err := m.fid.Close()
		g.polling.Unlock()
		if err != nil {
			m.err = fmt.Errorf("close region: %w", cause(err))
			return
		}
		m.domain.Leave()
	})
	return m.err
}

// imports are the peers' regions of a domain. Handles are not reused.
type imports struct {
	mu   sync.RWMutex
	last uint64
	open map[uint64]*remote
}

func newImports() *imports { return &imports{open: make(map[uint64]*remote)} }

// lookup returns the region of a handle, or nil if the handle is not valid (any more).
func (t *imports) lookup(handle uint64) *remote {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.open[handle]
}

// A remote is a fabric.RemoteMR.
type remote struct {
	domain    *domain
	handle    uint64
	key, base uint64
	memory    uint64 // address of base at the target, for alignment checks
}

func (d *domain) Import(raw []byte) (fabric.RemoteMR, error) {
	if err := d.Adopt(); err != nil {
		return nil, fmt.Errorf("import region: %w", err)
	}
	if len(raw) != rawLen || raw[0] != rawVersion {
		d.Leave()
		return nil, fmt.Errorf("import region of %d bytes: %w", len(raw), fabric.ErrInvalid)
	}
	r := &remote{domain: d, key: binary.BigEndian.Uint64(raw[1:]), base: binary.BigEndian.Uint64(raw[9:]), memory: binary.BigEndian.Uint64(raw[17:])}
	t := d.imports
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	r.handle = t.last
	t.open[r.handle] = r
	return r, nil
}

// Key returns the handle.
func (r *remote) Key() uint64 { return r.handle }

// Base returns the address at the target if libfabric requires it, else 0.
func (r *remote) Base() uint64 { return r.base }

// Close invalidates the handle. Ops that have looked it up before are not affected.
func (r *remote) Close() error {
	t := r.domain.imports
	t.mu.Lock()
	_, open := t.open[r.handle]
	delete(t.open, r.handle)
	t.mu.Unlock()
	if open {
		r.domain.Leave()
	}
	return nil
}
