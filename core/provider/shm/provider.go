// SPDX-License-Identifier: MIT

package shm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/handshake"
	"mori/core/provider/internal/local"
)

// Options configures a Provider. The zero value is ready to use.
type Options struct {
	Log *slog.Logger // nil: slog.Default()

	// ForceStream sends the payload of reads and writes over the socket, as if the kernel forbade
	// copies between processes.
	ForceStream bool

	// Sample n compares both ends of every n-th read or write after the copy; 0 disables this.
	Sample uint64

	// KeepPtracer leaves PR_SET_PTRACER unchanged. Otherwise, if kernel.yama.ptrace_scope is 1,
	// this process allows the user's other processes to access its memory.
	KeepPtracer bool

	// refuse, if set, is the error that the kernel returns for copies between processes: for tests.
	refuse error

	// kernel, if set, also copies within this process through the kernel: for tests.
	kernel bool
}

func (o *Options) vm() vmCalls {
	if o.refuse != nil {
		no := func(int, []sys.Iovec, []sys.Iovec) (int, error) { return 0, o.refuse }
		return vmCalls{read: no, write: no}
	}
	return vmCalls{read: vm.Read, write: vm.Write}
}

// A Provider is the transport between processes of one host.
type Provider struct {
	conn.Offer
	opts    Options
	ptracer sync.Once
}

// Registration describes this provider to package core.
var Registration = fabric.Registration{
	Name: "shm", Scope: fabric.ScopeHost, Medium: fabric.MediumMemory, HostMemory: true, GPUMemory: true, Preference: 30,
	Diagnose: diagnose,
}

// diagnose reports whether processes may copy each other's memory, or must send it through sockets.
func diagnose(fabric.Peers) fabric.Diagnosis {
	if ok, why := vm.Allowed(); !ok {
		return fabric.Diagnosis{Path: "shm/stream", Reasons: []string{"shm/cma: " + why}}
	}
	return fabric.Diagnosis{Path: "shm/cma"}
}

var _ fabric.Provider = (*Provider)(nil)

// New makes a provider. It starts nothing.
func New(opts Options) *Provider {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	return &Provider{Offer: conn.NewOffer("shm", "host", 0, fabric.Limits{BestOp: bestOp}), opts: opts}
}

// GetInfo describes this host, with an Info for each type of endpoint that satisfies hints, EPMsg
// first. node is empty. service is the name to connect to, "@name" or "name".
func (p *Provider) GetInfo(_ context.Context, node, service string, hints *fabric.Info) ([]*fabric.Info, error) {
	msg := p.Info
	if service != "" {
		msg.Dest = fabric.Addr("@" + strings.TrimPrefix(service, "@"))
	}
	if node != "" {
		return nil, fmt.Errorf("shm to node %q: peers are processes of this host: %w", node, fabric.ErrNoData)
	}
	if err := conn.OfferDevice(&msg, hints); err != nil {
		return nil, err
	}
	return conn.Answers(hints, msg)
}

// Open returns the fabric of this host.
func (p *Provider) Open(_ context.Context, in *fabric.Info) (fabric.Fabric, error) {
	if in.Provider != "" && in.Provider != "shm" {
		return nil, fmt.Errorf("open fabric of provider %q as shm: %w", in.Provider, fabric.ErrInvalid)
	}
	p.ptracer.Do(p.allowPtrace)
	domains := &domains{opts: &p.opts, open: make(map[*conn.Domain]*domain)}
	return conn.New(conn.Config{
		Info:       p.Info,
		Transport:  transport{opts: &p.opts},
		Links:      1,
		Logger:     p.opts.Log,
		CheckAddr:  local.CheckAddr,
		Attach:     domains.attach,
		OpenDomain: domains.watch,
	})
}

// allowPtrace runs before the first peer tries to copy. If Yama is absent or permissive, it does
// nothing.
func (p *Provider) allowPtrace() {
	if p.opts.KeepPtracer || p.opts.ForceStream {
		return
	}
	if scope, err := vm.PtraceScope(); err != nil || scope != vm.PtraceRestricted {
		return
	}
	if err := vm.AllowPtrace(); err != nil {
		p.opts.Log.Warn("shm: peers cannot access this process's memory", "err", err)
	}
}

// A transport makes abstract unix sockets and does shm's own handshake on them first.
type transport struct {
	local.Sockets
	opts *Options
}

var _ handshake.Transport = transport{}

// Prelude does shm's own handshake.
func (t transport) Prelude(conn net.Conn, _ bool) (any, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.New("shm over something other than a unix socket")
	}
	g, err := greet(unixConn, t.opts)
	if err != nil {
		return nil, err // avoids a non-nil interface with a nil pointer
	}
	return g, nil
}
