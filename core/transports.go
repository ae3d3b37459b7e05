// SPDX-License-Identifier: MIT

package core

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/provider/p2p"
	"mori/core/provider/shm"
	"mori/core/provider/tcp"
	"mori/core/provider/verbs"
)

// Options shape the providers.
type Options struct {
	Filter string      // FABRIC_PROVIDER: "a,b", or "^c" for all but c
	TLS    *tls.Config // of what leaves the host; nil: plain
	Sums   bool        // check the payload of what leaves the host
	Sample uint64      // compare both ends of every so many-th op in shared memory; 0 = of none
	Log    *slog.Logger

	NICs func() NICUse // asked when RDMA devices are opened; nil: AnyNIC

	Compress bool           // pack the payload of what leaves the host, where that is faster
	Packed   *atomic.Uint64 // counts what was packed; may be nil
}

// Registry returns the providers of this build in order of preference for host memory.
func Registry(o Options) (*fabric.Registry, error) {
	r := fabric.NewRegistry()
	for _, p := range []fabric.Provider{
		shm.New(shm.Options{Sample: o.Sample, Log: o.Log}),
		verbs.New(verbs.Options{Settings: o.settings(), TLS: o.TLS, Log: o.Log}),
		tcp.New(tcp.Options{TLS: o.TLS, Sums: o.Sums, Compress: o.Compress, Packed: o.Packed, Logger: o.Log}),
		p2p.New(p2p.Options{Log: o.Log}),
	} {
		if err := r.Register(p); err != nil {
			return nil, fmt.Errorf("register provider %s: %w", p.Name(), err)
		}
	}
	r.SetFilter(o.Filter)
	return r, nil
}

// settings answers with those of RDMA devices at the time of its call.
func (o Options) settings() func() (verbs.Settings, error) {
	log := &oneTime{log: o.Log}
	return func() (verbs.Settings, error) {
		use := AnyNIC()
		if o.NICs != nil {
			use = o.NICs()
		}
		return use.settings(log)
	}
}

// A Family is the providers of a backend, in order of preference.
type Family struct {
	Host    []string // for pairs of host memory
	GPU     []string // for pairs with GPU memory at one end or both
	Missing []string // what better ones are missing here for either, and why
}

// Transports is the family of a backend. A backend that nothing can serve is an error that wraps
// fabric.ErrNotSupported.
func Transports(backend string) (Family, error) {
	switch backend {
	case "RDMA":
		f := Family{Host: []string{"shm", "verbs", "tcp"}, GPU: []string{"p2p", "shm", "verbs", "tcp"}}
		if why := noRDMA(rdmaHost()); why != "" {
			f = Family{Host: []string{"shm", "tcp"}, GPU: []string{"p2p", "shm", "tcp"}, Missing: []string{why}}
		}
		return f, nil
	case "TCP":
		return Family{Host: []string{"tcp"}, GPU: []string{"tcp"}}, nil
	case "XGMI":
		return Family{GPU: []string{"p2p"}}, nil
	case "FABRIC":
		return Family{}, fmt.Errorf("FABRIC moves GPU memory over a fabric between hosts (NVLink across nodes, UALink), which no provider of this build does: %w", fabric.ErrNotSupported)
	}
	return Family{}, fmt.Errorf("no backend %q: want RDMA, TCP, XGMI or FABRIC: %w", backend, fabric.ErrInvalid)
}

// HasRDMA reports whether any of these transports is one over RDMA devices.
func HasRDMA(names []string) bool { return slices.Contains(names, "verbs") }

// Unfit says why a transport cannot reach a peer, "" if it may.
func Unfit(name string, sameNode bool) string {
	if (name == "shm" || name == "p2p") && !sameNode {
		return "the peer is on another host (node ids differ)"
	}
	return ""
}
