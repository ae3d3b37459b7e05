// SPDX-License-Identifier: MIT

package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys/thread"
)

// portEntries is the capacity of a port's completion queue, and the limit of pending ops.
const portEntries = 4096

// A Port is an endpoint for reliable datagrams, with its fabric, domain, completion queue, address
// vector and registrations.
type Port struct {
	Info *fabric.Info // address of the endpoint

	fab fabric.Fabric
	dom fabric.Domain
	cq  fabric.CQ
	av  fabric.AV
	ep  fabric.Endpoint

	name fabric.Addr

	mu      sync.Mutex
	regions []fabric.MR
	imports []fabric.RemoteMR
	closed  bool
}

// A source opens endpoints: a registry of core, or a provider.
type source interface {
	GetInfo(ctx context.Context, node, service string, hints *fabric.Info) ([]*fabric.Info, error)
	Open(ctx context.Context, in *fabric.Info) (fabric.Fabric, error)
}

// Open opens the first endpoint that matches the hints and has the capabilities that a queue needs.
// It listens at hints.Src.
func Open(ctx context.Context, from source, hints *fabric.Info) (_ *Port, err error) {
	want := hints.Clone()
	want.EPType = fabric.EPRDM
	want.Caps |= fabric.CapRMA | fabric.CapAtomic
	infos, err := from.GetInfo(ctx, "", "", want)
	if err != nil {
		return nil, fmt.Errorf("open a port for a proxy over provider %q: %w", want.Provider, err)
	}
	p := &Port{Info: infos[0].Clone()}
	p.Info.Src = hints.Clone().Src
	defer func() {
		if err != nil {
			err = fmt.Errorf("open a port for a proxy over %s: %w", p.Info.Provider, errors.Join(err, p.Close()))
		}
	}()
	if p.fab, err = from.Open(ctx, p.Info); err != nil {
		return nil, err
	}
	if p.dom, err = p.fab.Domain(ctx, p.Info); err != nil {
		return nil, err
	}
	if p.cq, err = p.dom.CQ(portEntries); err != nil {
		return nil, err
	}
	if p.av, err = p.dom.AV(16); err != nil {
		return nil, err
	}
	if p.ep, err = p.dom.Endpoint(p.Info); err != nil {
		return nil, err
	}
	if err = errors.Join(p.ep.BindCQ(p.cq, fabric.DirTransmit|fabric.DirRecv, false), p.ep.BindAV(p.av)); err != nil {
		return nil, err
	}
	if err = p.ep.Enable(); err != nil {
		return nil, err
	}
	p.name, err = p.ep.Name()
	return p, err
}

// Name returns the port's address, for its peers.
func (p *Port) Name() fabric.Addr { return p.name }

// A Region is registered memory: Raw is for peers, Desc for Local.
type Region struct {
	Raw  []byte
	Desc fabric.MRDesc
	mr   fabric.MR
}

var regionIDs atomic.Uint64

// Register gives peers and this side's commands access to a buffer until the port is closed.
func (p *Port) Register(buf fabric.Buffer) (Region, error) {
	key := fabric.RegionKey{ID: regionIDs.Add(1)}
	_, _ = rand.Read(key.Secret[:]) // never fails
	const access = fabric.AccessRemoteRead | fabric.AccessRemoteWrite | fabric.AccessLocalRead | fabric.AccessLocalWrite
	mr, err := p.dom.Reg(buf, access, key)
	if err != nil {
		return Region{}, fmt.Errorf("register %d bytes at %#x with %s: %w", buf.Len, buf.Addr, p.Info.Provider, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.regions = append(p.regions, mr)
	return Region{mr.Raw(), mr.Desc(), mr}, nil
}

// Forget deregisters a region before the port is closed. No pending command may use it.
func (p *Port) Forget(r Region) error {
	p.mu.Lock()
	i := slices.Index(p.regions, r.mr)
	closed := p.closed // and all regions with it
	if i >= 0 {
		p.regions = slices.Delete(p.regions, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 || closed {
		return nil
	}
	return r.mr.Close()
}

// A Shown is a region as its owner describes it to peers.
type Shown struct {
	Raw  []byte
	Len  uint64
	Host bool // host memory
}

// Reach returns the peer with that name and the regions that it described.
func (p *Port) Reach(name fabric.Addr, regions []Shown) (Peer, error) {
	numbers, err := p.av.Insert(name)
	if err != nil {
		return Peer{}, fmt.Errorf("reach %q: %w", name, err)
	}
	peer := Peer{Dest: numbers[0]}
	for i, r := range regions {
		rm, err := p.dom.Import(r.Raw)
		if err != nil {
			return Peer{}, fmt.Errorf("reach region %d of %q: %w", i, name, err)
		}
		p.mu.Lock()
		p.imports = append(p.imports, rm)
		p.mu.Unlock()
		peer.Regions = append(peer.Regions, Remote{Key: rm.Key(), Base: rm.Base(), Len: r.Len, Host: r.Host})
	}
	return peer, nil
}

// Write writes all of a local buffer to the start of a peer's first region and waits for
// completion. Call it only before a queue uses the port.
func (p *Port) Write(ctx context.Context, peer Peer, from Local) error {
	if len(peer.Regions) == 0 || peer.Regions[0].Len < from.Len {
		return fmt.Errorf("write %d bytes to a peer: %w", from.Len, fabric.ErrRange)
	}
	to := peer.Regions[0]
	op := fabric.Op{Kind: fabric.OpWrite, Dest: peer.Dest,
		Seg:  fabric.Seg{Addr: from.Addr, Len: from.Len, MR: from.Desc},
		RSeg: fabric.RSeg{Addr: to.Base, Len: from.Len, Key: to.Key}}
	if _, err := p.ep.Submit([]fabric.Op{op}); err != nil {
		return err
	}
	var done [1]fabric.Completion
	for {
		n, err := p.cq.Wait(ctx, done[:])
		if n == 1 {
			return nil
		}
		if errors.Is(err, fabric.ErrAvail) {
			var e fabric.ErrEntry
			if err := p.cq.ReadErr(&e); err == nil {
				return &e
			}
		} else if err != nil && !errors.Is(err, fabric.ErrAgain) {
			return err
		}
	}
}

// Puts posts count writes of bytes each on the calling thread, with window of them pending: the
// yardstick of a proxy over this port. Write k goes from k*bytes of the local buffer to k*bytes of
// the peer's first region. Call it only before a queue uses the port.
func (p *Port) Puts(ctx context.Context, peer Peer, from Local, bytes uint64, count, window int) (time.Duration, error) {
	all := uint64(count) * bytes
	if len(peer.Regions) == 0 || peer.Regions[0].Len < all || from.Len < all || window < 1 || bytes == 0 {
		return 0, fmt.Errorf("put %d times %d bytes, %d at once: %w", count, bytes, window, fabric.ErrRange)
	}
	to := peer.Regions[0]
	var done [64]fabric.Completion
	began := time.Now()
	for sent, ended := 0, 0; ended < count; {
		for sent < count && sent-ended < window {
			off := uint64(sent) * bytes
			op := fabric.Op{Kind: fabric.OpWrite, Dest: peer.Dest,
				Seg:  fabric.Seg{Addr: from.Addr + off, Len: bytes, MR: from.Desc},
				RSeg: fabric.RSeg{Addr: to.Base + off, Len: bytes, Key: to.Key}}
			if _, err := p.ep.Submit([]fabric.Op{op}); errors.Is(err, fabric.ErrAgain) {
				break
			} else if err != nil {
				return 0, err
			}
			sent++
		}
		n, err := p.cq.Read(done[:])
		if err != nil && !errors.Is(err, fabric.ErrAgain) {
			return 0, fmt.Errorf("put %d of %d: %w", ended, count, err)
		}
		if ended += n; n == 0 {
			if err := ctx.Err(); err != nil {
				return 0, fmt.Errorf("put %d of %d: %w", ended, count, err)
			}
			thread.Yield()
		}
	}
	return time.Since(began), nil
}

// Close ends all pending ops and closes the endpoint with everything that belongs to it.
func (p *Port) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var errs []error
	shut := func(there bool, c interface{ Close() error }) {
		if there {
			errs = append(errs, c.Close())
		}
	}
	shut(p.ep != nil, p.ep)
	for _, m := range p.imports {
		shut(true, m)
	}
	for _, m := range p.regions {
		shut(true, m)
	}
	shut(p.cq != nil, p.cq)
	shut(p.av != nil, p.av)
	shut(p.dom != nil, p.dom)
	shut(p.fab != nil, p.fab)
	return errors.Join(errs...)
}
