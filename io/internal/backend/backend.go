// SPDX-License-Identifier: MIT

package backend

import (
	"sync/atomic"

	"mori/io/internal/transport"
)

// A Backend is a family of transports that the user has asked for.
type Backend struct {
	Kind    Kind
	Config  *Config
	host    *Route   // for pairs of host memory; nil: it does not serve them
	gpu     *Route   // for pairs with GPU memory at one end or both; host, if both have the same transports
	notes   []string // what is missing and why
	removed atomic.Bool
}

// Removed reports whether the backend was taken out of its table.
func (b *Backend) Removed() bool { return b.removed.Load() }

// Routes are those of b, each once.
func (b *Backend) Routes() []*Route {
	switch {
	case b.host == nil:
		return []*Route{b.gpu}
	case b.host == b.gpu:
		return []*Route{b.host}
	}
	return []*Route{b.host, b.gpu}
}

// A Route is the transports of a backend for one kind of pair, in order of preference. Each path
// belongs to one: pairs of host memory and pairs with GPU memory have their own connections, which
// fail and heal apart.
type Route struct {
	Backend    *Backend
	Transports []*transport.Transport
	Notes      []string // what better ones are missing and why

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

// Memory says for which pairs the route is.
func (r *Route) Memory() string {
	switch {
	case r.Backend.host == r.Backend.gpu:
		return "any"
	case r.gpu:
		return "gpu"
	}
	return "host"
}
