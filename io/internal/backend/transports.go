// SPDX-License-Identifier: MIT

package backend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"mori/core"
	"mori/core/config"
	"mori/core/fabric"
	"mori/core/limits"
	"mori/io/internal/control"
	"mori/io/internal/errs"
	"mori/io/internal/transport"
)

// openWait limits how long a transport takes to open.
const openWait = 5 * time.Second

// transports holds the providers that the backends of an engine have opened. The mutex of their
// Table guards it.
type transports struct {
	config   *TableConfig
	nics     func() core.NICUse
	registry *fabric.Registry // nil until init
	open     []*transport.Transport
}

// route opens the named transports. It returns nil if names is empty.
func (s *transports) route(b *Backend, gpu bool, names []string, c *control.Server) (*Route, error) {
	if len(names) == 0 {
		return nil, nil
	}
	r := &Route{Backend: b, gpu: gpu, Notes: append([]string(nil), b.notes...)}
	for _, name := range names {
		tr, err := s.get(name, c)
		if limits.IsShort(err) { // it would be missing for the lifetime of the engine
			return nil, fmt.Errorf("%s is not available: %w", name, err)
		}
		if err != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("%s is not available: %v", name, err))
			continue
		}
		r.Transports = append(r.Transports, tr)
	}
	if len(r.Transports) == 0 {
		return nil, fmt.Errorf("no transport opened: %v: %w", r.Notes, errs.ErrUnsupported)
	}
	return r, nil
}

// get opens the named transport, once, and registers all memory with it.
func (s *transports) get(name string, c *control.Server) (*transport.Transport, error) {
	for _, tr := range s.open {
		if tr.Name() == name {
			return tr, nil
		}
	}
	if err := s.init(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openWait)
	defer cancel()
	tr, err := transport.Open(ctx, name, transport.Config{Registry: s.registry, Host: s.config.Host,
		Server: c, Arrivals: s.config.Arrivals, Log: s.config.Self.Log})
	if err != nil {
		return nil, err
	}
	for _, r := range s.config.Regions.All() {
		if err := r.Attach(tr); err != nil {
			return nil, errors.Join(err, tr.Close())
		}
	}
	s.open = append(s.open, tr)
	return tr, nil
}

// init creates the registry of providers, once.
func (s *transports) init() error {
	if s.registry != nil {
		return nil
	}
	self := s.config.Self
	sample, err := config.Int(config.IOSample, 0, 0, math.MaxInt32)
	if err != nil {
		self.Log.Warn("environment variable ignored", "error", err)
	}
	s.registry, err = core.Registry(core.Options{Filter: config.Get(config.FabricProvider),
		TLS: self.TLS, Sums: config.Flag(config.IOChecksum, false), Sample: uint64(sample),
		Compress: config.Flag(config.IOCompress, false), Packed: s.config.Packed, NICs: s.nics,
		Log: self.Log})
	return err
}

// cut removes the transports from index n on and returns a function that closes them.
func (s *transports) cut(n int) (discard func() error) {
	regions, cut := s.config.Regions.All(), s.open[n:]
	s.open = s.open[:n:n]
	return func() (err error) {
		for _, tr := range cut {
			for _, r := range regions {
				err = errors.Join(err, r.Detach(tr))
			}
			err = errors.Join(err, tr.Close())
		}
		return err
	}
}
