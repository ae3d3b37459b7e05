// SPDX-License-Identifier: MIT

package core

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/provider/p2p"
	"mori/core/provider/shm"
	"mori/core/provider/tcp"
	"mori/core/topology"
)

// Options shape the providers.
type Options struct {
	Filter string      // FABRIC_PROVIDER: "a,b", or "^c" for all but c
	TLS    *tls.Config // of what leaves the host; nil: plain
	Sums   bool        // check the payload of what leaves the host
	Sample uint64      // compare both ends of every so many-th op in shared memory; 0 = of none
	Log    *slog.Logger

	Compress bool           // pack the payload of what leaves the host, where that is faster
	Packed   *atomic.Uint64 // counts what was packed; may be nil
}

// Registry returns the providers of this build in order of preference for host memory.
func Registry(o Options) (*fabric.Registry, error) {
	r := fabric.NewRegistry()
	overTCP := tcp.New(tcp.Options{TLS: o.TLS, Sums: o.Sums, Compress: o.Compress, Packed: o.Packed, Logger: o.Log})
	for _, p := range []fabric.Provider{shm.New(shm.Options{Sample: o.Sample, Log: o.Log}), overTCP, p2p.New(p2p.Options{Log: o.Log})} {
		if err := r.Register(p); err != nil {
			return nil, fmt.Errorf("register provider %s: %w", p.Name(), err)
		}
	}
	r.SetFilter(o.Filter)
	return r, nil
}

// A Family is the providers of a backend, in order of preference.
type Family struct {
	Host    []string // for pairs of host memory
	GPU     []string // for pairs with GPU memory at one end or both
	Missing []string // what better ones are missing here for either, and why
}

// Transports is the family of a backend. A backend that nothing can serve is an error that wraps fabric.ErrNotSupported.
func Transports(backend string) (Family, error) {
	switch backend {
	case "RDMA":
		return Family{Host: []string{"shm", "tcp"}, GPU: []string{"p2p", "shm", "tcp"}, Missing: []string{noRDMA(topology.Scan(os.DirFS("/")))}}, nil
	case "TCP":
		return Family{Host: []string{"tcp"}, GPU: []string{"tcp"}}, nil
	case "XGMI":
		return Family{GPU: []string{"p2p"}}, nil
	case "FABRIC":
		return Family{}, fmt.Errorf("FABRIC moves GPU memory over a fabric between hosts (NVLink across nodes, UALink), which no provider of this build does: %w", fabric.ErrNotSupported)
	}
	return Family{}, fmt.Errorf("no backend %q: want RDMA, TCP, XGMI or FABRIC: %w", backend, fabric.ErrInvalid)
}

// noRDMA says why no RDMA device is used.
func noRDMA(h *topology.Host) string {
	switch {
	case len(h.RDMA) == 0:
		return "rdma: no active RDMA device on this host (/sys/class/infiniband is empty)"
	case !h.Active():
		return fmt.Sprintf("rdma: no active RDMA device on this host (%d ports, all down)", len(h.RDMA))
	}
	return "rdma: this build has no verbs provider, the host's RDMA devices are not used"
}

// Unfit says why a transport cannot reach a peer, "" if it may.
func Unfit(name string, sameNode bool) string {
	if (name == "shm" || name == "p2p") && !sameNode {
		return "the peer is on another host (node ids differ)"
	}
	return ""
}
