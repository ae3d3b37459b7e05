// SPDX-License-Identifier: MIT

package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"mori/core"
	"mori/core/fabric"
	"mori/io/internal/arrivals"
	"mori/io/internal/control"
)

const (
	cqSize = 4096 // completions of one endpoint
	eqSize = 1024 // connection events of one transport

	defaultOpBytes = 1 << 20 // splits transfers if a provider states no size

	// minOpSegs, maxOpSegs and opPage set the number of segments of an op, unless a provider takes
	// fewer.
	minOpSegs = 1024
	maxOpSegs = 1 << 20
	opPage    = 8192
)

// Config is shared by the transports of an engine.
type Config struct {
	Registry *fabric.Registry
	Host     string          // address or name to listen at
	Server   *control.Server // checks the tokens of peers
	Arrivals *arrivals.Table
	Log      *slog.Logger
}

// A Transport is one provider of an engine. Safe for concurrent use.
type Transport struct {
	// Domain is where regions are registered and endpoints are made. It does not change.
	Domain fabric.Domain

	name   string
	config Config
	info   *fabric.Info
	fab    fabric.Fabric
	lis    fabric.Listener
	eq     fabric.EQ

	stop context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	watchers map[fabric.Endpoint]func(error) // each called once, when its connection ended
	conns    map[*Conn]struct{}
	closing  bool
}

// Open opens the named provider and starts to listen.
func Open(ctx context.Context, name string, c Config) (t *Transport, err error) {
	info, err := findProvider(ctx, c.Registry, name)
	if err != nil {
		return nil, err
	}
	t = &Transport{name: name, config: c, info: info.Clone(),
		watchers: map[fabric.Endpoint]func(error){}, conns: map[*Conn]struct{}{}}
	opened := t
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.Close())
		}
	}()
	// Do not keep what failed to open: an interface may then hold a nil pointer, which Close must
	// not call.
	fab, err := c.Registry.Open(ctx, t.info)
	if err != nil {
		return nil, err
	}
	t.fab = fab
	dom, err := fab.Domain(ctx, t.info)
	if err != nil {
		return nil, err
	}
	t.Domain = dom
	eq, err := fab.EQ(eqSize)
	if err != nil {
		return nil, err
	}
	t.eq = eq
	at := t.info.Clone()
	at.Src = core.ListenAddr(name, c.Host)
	lis, err := fab.Listen(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("listen with %s: %w", name, err)
	}
	t.lis = lis
	run, stop := context.WithCancel(context.Background())
	t.stop = stop
	t.wg.Add(2)
	go t.accept(run)
	go t.watchEvents(run)
	return t, nil
}

// Name returns the provider's name.
func (t *Transport) Name() string { return t.name }

// Addr returns the address that the transport listens on.
func (t *Transport) Addr() fabric.Addr { return t.lis.Addr() }

// TakesGPUMemory reports whether the transport can register GPU memory.
func (t *Transport) TakesGPUMemory() bool { return t.info.Caps&fabric.CapHMEM != 0 }

// findProvider asks for device memory first. A provider without it on this machine serves host
// memory.
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

// BestOp returns the size in bytes of the ops with which the provider is fastest.
func (t *Transport) BestOp() uint64 {
	if n := t.info.Limits.BestOp; n > 0 {
		return n
	}
	return defaultOpBytes
}

// SegMax returns the maximum number of segments of an op. It is higher if the provider is fastest
// with large ops, so that one op can hold many small blocks.
func (t *Transport) SegMax() int {
	l := &t.info.Limits
	n := max(minOpSegs, int(min(l.BestOp/opPage, maxOpSegs)))
	for _, limit := range []int{l.SegLimit, l.RSegLimit} {
		if limit > 0 {
			n = min(n, limit)
		}
	}
	return n
}

// BlockLimit returns how many blocks an op may have, 0 if the provider does not support blocks.
func (t *Transport) BlockLimit() int { return t.info.Limits.BlockLimit }

// Endpoint returns an enabled endpoint with its own completion queue. ended is called once, when
// the connection ends, unless Forget is called first.
func (t *Transport) Endpoint(ended func(error)) (fabric.Endpoint, fabric.CQ, error) {
	cq, err := t.Domain.CQ(cqSize)
	if err != nil {
		return nil, nil, err
	}
	ep, err := t.Domain.Endpoint(t.info)
	if err != nil {
		return nil, nil, errors.Join(err, cq.Close())
	}
	t.mu.Lock()
	t.watchers[ep] = ended
	t.mu.Unlock()
	err = errors.Join(ep.BindCQ(cq, fabric.DirTransmit|fabric.DirRecv, true), ep.BindEQ(t.eq))
	if err == nil {
		err = ep.Enable()
	}
	if err != nil {
		t.Forget(ep)
		return nil, nil, errors.Join(err, ep.Close(), cq.Close())
	}
	return ep, cq, nil
}

// Forget removes the function that is called when the connection of ep ends.
func (t *Transport) Forget(ep fabric.Endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.watchers, ep)
}

// watchEvents notifies the owners of endpoints when their connections end.
func (t *Transport) watchEvents(ctx context.Context) {
	defer t.wg.Done()
	for {
		ev, err := t.eq.Wait(ctx)
		if err != nil {
			return
		}
		if ev.Kind != fabric.EventShutdown {
			continue
		}
		t.mu.Lock()
		ended := t.watchers[ev.EP]
		delete(t.watchers, ev.EP)
		t.mu.Unlock()
		if ended != nil {
			t.wg.Add(1) // Close waits for it: a half-closed endpoint holds the event queue
			go func() { // closing blocks, and must not delay the next event
				defer t.wg.Done()
				ended(ev.Err)
			}()
		}
	}
}

// Close stops listening and closes all connections of peers. All paths over the transport must be
// closed before.
func (t *Transport) Close() error {
	var all error
	if t.lis != nil {
		all = errors.Join(all, t.lis.Close())
	}
	if t.stop != nil {
		t.stop()
	}
	t.mu.Lock()
	t.closing = true // from here on admit adds no connection
	t.mu.Unlock()
	for _, c := range t.Conns() {
		c.Close()
	}
	t.wg.Wait()
	if t.eq != nil {
		all = errors.Join(all, t.eq.Close())
	}
	if t.Domain != nil {
		all = errors.Join(all, t.Domain.Close())
	}
	if t.fab != nil {
		all = errors.Join(all, t.fab.Close())
	}
	return all
}
