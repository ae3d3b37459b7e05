// SPDX-License-Identifier: MIT

package io

import (
	"fmt"
	"io"
	"os"
	"time"

	"mori/io/internal/meter"
	"mori/io/internal/transfer"
)

// WriteTrace writes the last 4096 transfers, and the pending ones, as trace-event JSON, which
// Perfetto and Chrome's about:tracing load. Each peer and path has one track, or more where
// transfers overlap.
func (e *Engine) WriteTrace(w io.Writer) error { return writeTrace(w, e) }

func writeTrace(w io.Writer, engines ...*Engine) error {
	now := time.Now()
	var all []meter.Traced
	for _, e := range engines {
		open, _ := e.peers.Open(now, openTraced)
		all = append(all, meter.Traced{Engine: e.self.Key,
			Records: append(e.meters.Recent.Records(), open...)})
	}
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost"
	}
	return meter.WriteTrace(w, os.Getpid(),
		fmt.Sprintf("mori.io on %s, pid %d", hostname, os.Getpid()), all, transfer.CodeName)
}
