// SPDX-License-Identifier: MIT

package mem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"

	"mori/core/fabric"
	"mori/core/fabric/util/atomics"
)

// maxMsg bounds the bytes of one op. Ops move in order, whatever their length.
const maxMsg = 1 << 40

// The limits of an endpoint. An EPRDM accepts TxSize ops for each peer.
var limits = fabric.Limits{
	MaxMsg:     maxMsg,
	MaxInject:  64,
	MaxPrivate: 256,
	CQDataSize: 8,
	TxSize:     512,
	RxSize:     1024,
	SegLimit:   1 << 16,
	RSegLimit:  1 << 16,
	MRKeySize:  fabric.RegionKeyRawLen,
	BestOp:     4 << 20,
	MaxAtomic:  atomics.MaxBytes,
	OrderRAW:   maxMsg,
	OrderWAR:   maxMsg,
	OrderWAW:   maxMsg,
}

// earlyRoom bounds the bytes of one peer's messages that wait for receives.
const earlyRoom = 16 << 20

// Options configure a Provider.
type Options struct {
	// Fault, if set, is called before each op is executed, concurrently from many goroutines. If it
	// returns an error, the connection breaks: the op is not executed, and both sides end with
	// ErrConnReset. It may block to delay the op.
	Fault func(op *fabric.Op) error

	// Logger gets one line for each connection that an EPRDM endpoint refuses; nil is slog.Default().
	Logger *slog.Logger
}

// A Provider is a network of its own.
type Provider struct {
	opts Options

	mu        sync.Mutex
	listeners map[fabric.Addr]*listener
	fresh     int // number of generated names
}

var _ fabric.Provider = (*Provider)(nil)

// New makes a network without listeners.
func New(opts Options) *Provider {
	return &Provider{opts: opts, listeners: make(map[fabric.Addr]*listener)}
}

// Name returns "mem".
func (p *Provider) Name() string { return "mem" }

// Version returns the provider's and the API's version.
func (p *Provider) Version() (provider, api fabric.Version) {
	return fabric.Version{Major: 1}, fabric.Version{Major: 1}
}

// GetInfo returns one Info for each endpoint type, for a listener or EPRDM endpoint named node or
// node:service; see fabric.Provider.
func (p *Provider) GetInfo(_ context.Context, node, service string, hints *fabric.Info) ([]*fabric.Info, error) {
	version, _ := p.Version()
	offer := fabric.Info{
		Provider:        p.Name(),
		ProviderVersion: version,
		FabricName:      "process",
		DomainName:      "memory",
		Caps:            fabric.CapMSG | fabric.CapRMA | fabric.CapAtomic | fabric.CapLocalComm,
		Order:           fabric.OrderAll,
		EPType:          fabric.EPMsg,
		Dest:            fabric.Addr(node),
		Limits:          limits,
	}
	if service != "" {
		offer.Dest = fabric.Addr(node + ":" + service)
	}
	datagrams := offer
	datagrams.EPType, datagrams.Caps = fabric.EPRDM, offer.Caps|fabric.CapSource
	var infos []*fabric.Info
	var misfits []error
	for _, o := range []*fabric.Info{&offer, &datagrams} {
		in, err := fabric.Match(hints, o)
		if err != nil {
			misfits = append(misfits, err)
			continue
		}
		infos = append(infos, in)
	}
	if len(infos) == 0 {
		return nil, errors.Join(misfits...)
	}
	return infos, nil
}

// Open opens the network; see fabric.Provider.
func (p *Provider) Open(_ context.Context, in *fabric.Info) (fabric.Fabric, error) {
	if in == nil || in.Provider != "" && in.Provider != p.Name() {
		return nil, fmt.Errorf("open mem with info of another provider: %w", fabric.ErrInvalid)
	}
	return &network{provider: p}, nil
}

// list registers l under its name, or under a new one if it has none.
func (p *Provider) list(l *listener) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.addr == "" {
		l.addr = p.freshName()
	}
	if p.listeners[l.addr] != nil {
		return fmt.Errorf("listen at %s: %w", l.addr, syscall.EADDRINUSE)
	}
	p.listeners[l.addr] = l
	return nil
}

// name generates a name for an endpoint.
func (p *Provider) name() fabric.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.freshName()
}

// freshName generates a name that no listener has. The caller holds mu.
func (p *Provider) freshName() fabric.Addr {
	for {
		p.fresh++
		if a := fabric.Addr(fmt.Sprintf("@mem-%d", p.fresh)); p.listeners[a] == nil {
			return a
		}
	}
}

func (p *Provider) unlist(l *listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.listeners, l.addr)
}

func (p *Provider) find(addr fabric.Addr) *listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listeners[addr]
}
