// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"mori/core"
	"mori/core/fabric"
)

const (
	cqSize = 4096 // completions of one endpoint
	eqSize = 1024 // connection events of one transport

	defaultOpBytes = 1 << 20 // cuts transfers where a provider states nothing

	// minOpSegs, maxOpSegs and opPage bound the segments of an op, unless a provider takes fewer.
	minOpSegs = 1024
	maxOpSegs = 1 << 20
	opPage    = 8192
)

// A transport is one provider as an engine uses it: its domain, where it listens, and who listens
// to connection events.
type transport struct {
	name string
	hmem bool // it takes device memory
	info *fabric.Info
	fab  fabric.Fabric
	dom  fabric.Domain
	lis  fabric.Listener
	eq   fabric.EQ

	stop context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	watchers map[fabric.Endpoint]func(error) // called once, when the connection ended
	links    map[*link]struct{}
	closing  bool
}

// openTransport opens the named provider and starts to listen.
func openTransport(ctx context.Context, e *Engine, name string) (tr *transport, err error) {
	info, err := findProvider(ctx, e.backends.registry, name)
	if err != nil {
		return nil, err
	}
	tr = &transport{name: name, hmem: info.Caps&fabric.CapHMEM != 0, info: info.Clone(),
		watchers: map[fabric.Endpoint]func(error){}, links: map[*link]struct{}{}}
	opened := tr
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	// What failed to open is not kept: an interface may hold a nil pointer then, which close must
	// not call.
	fab, err := e.backends.registry.Open(ctx, tr.info)
	if err != nil {
		return nil, err
	}
	tr.fab = fab
	dom, err := fab.Domain(ctx, tr.info)
	if err != nil {
		return nil, err
	}
	tr.dom = dom
	eq, err := fab.EQ(eqSize)
	if err != nil {
		return nil, err
	}
	tr.eq = eq
	at := tr.info.Clone()
	at.Src = core.ListenAddr(name, e.config.Host)
	lis, err := fab.Listen(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("listen with %s: %w", name, err)
	}
	tr.lis = lis
	run, stop := context.WithCancel(context.Background())
	tr.stop = stop
	tr.wg.Add(2)
	go tr.acceptLinks(run, e)
	go tr.watchEvents(run)
	return tr, nil
}

// findProvider asks for device memory first: a provider that can't have it on this machine serves
// host memory.
func findProvider(ctx context.Context, from *fabric.Registry, name string) (*fabric.Info, error) {
	hints := &fabric.Info{Provider: name, EPType: fabric.EPMsg,
		Caps: fabric.CapMSG | fabric.CapRMA | fabric.CapHMEM, MRMode: fabric.MRHMEM}
	infos, err := from.GetInfo(ctx, "", "", hints)
	if errors.Is(err, fabric.ErrNoData) {
		why := err
		hints.Caps &^= fabric.CapHMEM
		if infos, err = from.GetInfo(ctx, "", "", hints); err != nil {
			err = why
		}
	}
	if err != nil {
		return nil, fmt.Errorf("find provider %s: %w", name, err)
	}
	return infos[0], nil
}

// opBytes is where transfers are cut: at the user's chunk size if chunking is on, else where the
// provider is fastest.
func (tr *transport) opBytes(c *BackendConfig) uint64 {
	if c.EnableChunking {
		return uint64(c.ChunkBytes)
	}
	if n := tr.info.Limits.BestOp; n > 0 {
		return n
	}
	return defaultOpBytes
}

// segMax is how many segments an op has at most: more where the provider is fastest with large ops,
// so that it gets many small blocks in one.
func (tr *transport) segMax() int {
	l := &tr.info.Limits
	n := max(minOpSegs, int(min(l.BestOp/opPage, maxOpSegs)))
	for _, limit := range []int{l.SegLimit, l.RSegLimit} {
		if limit > 0 {
			n = min(n, limit)
		}
	}
	return n
}

// endpoint makes an enabled endpoint with its own completion queue; ended is called once, when the
// connection is over.
func (tr *transport) endpoint(ended func(error)) (fabric.Endpoint, fabric.CQ, error) {
	cq, err := tr.dom.CQ(cqSize)
	if err != nil {
		return nil, nil, err
	}
	ep, err := tr.dom.Endpoint(tr.info)
	if err != nil {
		return nil, nil, errors.Join(err, cq.Close())
	}
	tr.mu.Lock()
	tr.watchers[ep] = ended
	tr.mu.Unlock()
	err = errors.Join(ep.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, true), ep.BindEQ(tr.eq))
	if err == nil {
		err = ep.Enable()
	}
	if err != nil {
		tr.forget(ep)
		return nil, nil, errors.Join(err, ep.Close(), cq.Close())
	}
	return ep, cq, nil
}

func (tr *transport) forget(ep fabric.Endpoint) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	delete(tr.watchers, ep)
}

// watchEvents notifies the owners of endpoints when their connections end.
func (tr *transport) watchEvents(ctx context.Context) {
	defer tr.wg.Done()
	for {
		ev, err := tr.eq.Wait(ctx)
		if err != nil {
			return
		}
		if ev.Kind != fabric.EventShutdown {
			continue
		}
		tr.mu.Lock()
		ended := tr.watchers[ev.EP]
		delete(tr.watchers, ev.EP)
		tr.mu.Unlock()
		if ended != nil {
			tr.wg.Add(1) // close waits for it: an endpoint half closed holds the event queue
			go func() {  // closing waits; the next event should not
				defer tr.wg.Done()
				ended(ev.Err)
			}()
		}
	}
}

// close needs all paths of the transport closed.
func (tr *transport) close() error {
	var all error
	if tr.lis != nil {
		all = errors.Join(all, tr.lis.Close())
	}
	if tr.stop != nil {
		tr.stop()
	}
	tr.mu.Lock()
	tr.closing = true // from here on admit adds no link
	tr.mu.Unlock()
	for _, l := range tr.allLinks() {
		l.close(ErrClosed)
	}
	tr.wg.Wait()
	if tr.eq != nil {
		all = errors.Join(all, tr.eq.Close())
	}
	if tr.dom != nil {
		all = errors.Join(all, tr.dom.Close())
	}
	if tr.fab != nil {
		all = errors.Join(all, tr.fab.Close())
	}
	return all
}
