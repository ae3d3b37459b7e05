// SPDX-License-Identifier: MIT

package backend

import (
	"sync/atomic"

	"mori/io/internal/transport"
)

// A Backend is a family of transports that the user has created.
type Backend struct {
	Kind    Kind
	Config  *Config
	host    *Route   // for pairs of host memory; nil if the backend does not serve them
	gpu     *Route   // for pairs with GPU memory at one end or both; equal to host if the transports are the same
	notes   []string // missing transports, with reasons
	removed atomic.Bool
}

// Removed reports whether the backend was removed from its table.
func (b *Backend) Removed() bool { return b.removed.Load() }

// Routes returns the routes of b, each once.
func (b *Backend) Routes() []*Route {
	switch {
	case b.host == nil:
		return []*Route{b.gpu}
	case b.host == b.gpu:
		return []*Route{b.host}
	}
	return []*Route{b.host, b.gpu}
}

// A Route lists the transports of a backend for one kind of pair, in order of preference. Each path
// belongs to one route. Pairs of host memory and pairs with GPU memory use separate connections,
// which fail and recover independently.
type Route struct {
	Backend    *Backend
	Transports []*transport.Transport
	Notes      []string // missing better transports, with reasons

	gpu bool
}

func (r *Route) names() []string {
	out := []string{}
	if r != nil {
		for _, tr := range r.Transports {
			out = append(out, tr.Name())
		}
	}
	return out
}

// Memory names the kind of pairs that the route serves.
func (r *Route) Memory() string {
	switch {
	case r.Backend.host == r.Backend.gpu:
		return "any"
	case r.gpu:
		return "gpu"
	}
	return "host"
}
