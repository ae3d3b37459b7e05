// SPDX-License-Identifier: MIT

package core

import (
	"cmp"
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

	Compress bool           // compress the payload of what leaves the host, where that is faster
	Packed   *atomic.Uint64 // counts what was compressed; may be nil
}

// A transport is a provider of this build.
type transport struct {
	fabric.Registration
	open func(Options) fabric.Provider
}

// transports are the providers of this build: a new one is a line here. The order is of no
// consequence.
var transports = []transport{
	{p2p.Registration, func(o Options) fabric.Provider { return p2p.New(p2p.Options{Log: o.Log}) }},
	{shm.Registration, func(o Options) fabric.Provider { return shm.New(shm.Options{Sample: o.Sample, Log: o.Log}) }},
	{verbs.Registration, func(o Options) fabric.Provider {
		return verbs.New(verbs.Options{Settings: o.settings(), TLS: o.TLS, Log: o.Log})
	}},
	{tcp.Registration, func(o Options) fabric.Provider {
		return tcp.New(tcp.Options{TLS: o.TLS, Sums: o.Sums, Compress: o.Compress, Packed: o.Packed, Logger: o.Log})
	}},
}

// registered finds a provider of this build.
func registered(name string) (fabric.Registration, bool) {
	i := slices.IndexFunc(transports, func(t transport) bool { return t.Name == name })
	if i < 0 {
		return fabric.Registration{}, false
	}
	return transports[i].Registration, true
}

// preferred lists the transports that fit, the preferred one first.
func preferred(fits func(*fabric.Registration) bool) []transport {
	var all []transport
	for _, t := range transports {
		if fits(&t.Registration) {
			all = append(all, t)
		}
	}
	slices.SortStableFunc(all, func(a, b transport) int { return cmp.Compare(b.Preference, a.Preference) })
	return all
}

// Registrations lists the providers of this build, the preferred one first.
func Registrations() []fabric.Registration {
	var all []fabric.Registration
	for _, t := range preferred(func(*fabric.Registration) bool { return true }) {
		all = append(all, t.Registration)
	}
	return all
}

// Registry returns the providers of this build in order of preference for host memory; those that
// do not serve host memory come last.
func Registry(o Options) (*fabric.Registry, error) {
	r := fabric.NewRegistry()
	host := preferred(func(t *fabric.Registration) bool { return t.HostMemory })
	others := preferred(func(t *fabric.Registration) bool { return !t.HostMemory })
	for _, t := range append(host, others...) {
		if err := r.Register(t.open(o)); err != nil {
			return nil, fmt.Errorf("register provider %s: %w", t.Name, err)
		}
	}
	r.SetFilter(o.Filter)
	return r, nil
}

// settings returns a function for the settings of RDMA devices at the time of its call.
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

// family is that of the transports that fit.
func family(fits func(*fabric.Registration) bool) (f Family) {
	for _, t := range preferred(fits) {
		if t.HostMemory {
			f.Host = append(f.Host, t.Name)
		}
		if t.GPUMemory {
			f.GPU = append(f.GPU, t.Name)
		}
	}
	return f
}

// Transports is the family of a backend. A backend that nothing can serve is an error that wraps
// fabric.ErrNotSupported.
func Transports(backend string) (Family, error) {
	by := func(m fabric.Medium) func(*fabric.Registration) bool {
		return func(t *fabric.Registration) bool { return t.Medium == m }
	}
	switch backend {
	case "RDMA":
		missing, why := withoutDevices()
		f := family(func(t *fabric.Registration) bool { return !missing[t.Name] })
		f.Missing = why
		return f, nil
	case "TCP":
		return family(by(fabric.MediumSocket)), nil
	case "XGMI":
		return family(by(fabric.MediumGPU)), nil
	case "FABRIC":
		return Family{}, fmt.Errorf("FABRIC moves GPU memory over a fabric between hosts (NVLink across nodes, UALink), which no provider of this build does: %w", fabric.ErrNotSupported)
	}
	return Family{}, fmt.Errorf("unknown backend %q: want RDMA, TCP, XGMI or FABRIC: %w", backend, fabric.ErrInvalid)
}

// withoutDevices finds the providers for RDMA devices that have none on this host, and says why.
func withoutDevices() (missing map[string]bool, why []string) {
	missing = map[string]bool{}
	for _, t := range preferred(func(t *fabric.Registration) bool { return t.Medium == fabric.MediumNIC }) {
		if d := t.Diagnose(fabric.Peers{OtherHost: true}); d.Path == "" {
			missing[t.Name] = true
			why = append(why, d.Reasons...)
		}
	}
	return missing, why
}

// HasRDMA reports whether any of these transports uses RDMA devices.
func HasRDMA(names []string) bool { return slices.ContainsFunc(names, Pins) }

// Pins reports whether a transport has NICs pin what is registered with it. Then all of a region is
// taken from the machine's memory, whether it was ever touched or not, and local memory that is not
// registered takes a slower path.
func Pins(name string) bool {
	t, ok := registered(name)
	return ok && t.Medium == fabric.MediumNIC
}

// OtherHost is why transports within a host do not reach a peer.
const OtherHost = "the peer is on another host (node ids differ)"

// Unfit says why a transport cannot reach a peer, "" if it may.
func Unfit(name string, sameNode bool) string {
	if t, ok := registered(name); ok && t.Scope == fabric.ScopeHost && !sameNode {
		return OtherHost
	}
	return ""
}
