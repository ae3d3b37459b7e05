// SPDX-License-Identifier: MIT

package io

import (
	"io"
	"log/slog"
	"slices"
	"sync"

	"mori/core/config"
	"mori/io/internal/page"
	"mori/io/internal/stall"
)

// process is shared by all engines of this process: the HTTP server that shows them, if
// MORI_METRICS_PORT is set, and the limit on traces of stalled transfers.
var process observatory

// An observatory shows engines over HTTP, from the first engine's first backend until the last
// engine closes.
type observatory struct {
	mu      sync.Mutex
	engines []*Engine
	server  *page.Server // nil: off

	stalls stall.Limit
}

// join adds e, once. If the server cannot start, join logs a warning: transfers work without it.
func (o *observatory) join(e *Engine) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.engines, e) {
		return
	}
	o.engines = append(o.engines, e)
	if o.server == nil {
		o.server = o.open(e.self.Log)
	}
}

// open starts the server if the environment asks for one.
func (o *observatory) open(log *slog.Logger) *page.Server {
	port, err := config.Int(config.MetricsPort, 0, 0, 65535)
	if err != nil {
		log.Warn("environment variable ignored", "error", err)
	}
	if port == 0 {
		return nil
	}
	s, err := page.Open(config.Get(config.MetricsHost), port, o)
	if err != nil {
		log.Warn("no metrics server", "reason", err)
		return nil
	}
	log.Info("metrics server", "address", s.Addr())
	return s
}

// leave removes e and closes the server after the last engine.
func (o *observatory) leave(e *Engine) {
	o.mu.Lock()
	o.engines = slices.DeleteFunc(o.engines, func(x *Engine) bool { return x == e })
	var over *page.Server
	if len(o.engines) == 0 {
		over, o.server = o.server, nil
	}
	o.mu.Unlock()
	if over != nil {
		over.Close()
	}
}

func (o *observatory) all() []*Engine {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.engines)
}

// Stats returns the statistics of all engines.
func (o *observatory) Stats() []Stats {
	out := []Stats{}
	for _, e := range o.all() {
		out = append(out, e.Stats())
	}
	return out
}

// WriteTrace writes one trace of all engines.
func (o *observatory) WriteTrace(w io.Writer) error { return writeTrace(w, o.all()...) }
