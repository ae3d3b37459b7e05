// SPDX-License-Identifier: MIT

package io

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"mori/core/config"
	"mori/core/fabric"
	"mori/io/internal/meter"
)

// WriteTrace writes the last 4096 transfers, and those in flight, as trace-event JSON, which
// Perfetto and Chrome's about:tracing load: one track for each peer and path, more where transfers
// overlap.
func (e *Engine) WriteTrace(w io.Writer) error { return writeTrace(w, e) }

func writeTrace(w io.Writer, engines ...*Engine) error {
	now := time.Now()
	var all []meter.Traced
	for _, e := range engines {
		all = append(all, meter.Traced{Engine: e.self.Key, Records: append(e.recent.Records(), e.openRecords(now, openTraced)...)})
	}
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost"
	}
	return meter.WriteTrace(w, os.Getpid(), fmt.Sprintf("mori.io on %s, pid %d", hostname, os.Getpid()), all, codeName)
}

// Traces of stalls that this process writes at most: one in so long, and so many in all, so that
// they never fill a disk.
const (
	stallDumpEvery = 10 * time.Second
	stallDumpsMost = 100
)

// stallDumps are the traces of stalls that this process has written.
var stallDumps struct {
	sync.Mutex
	last  time.Time
	count int
}

// mayDumpStall tells whether it is time for one more.
func mayDumpStall(now time.Time) bool {
	stallDumps.Lock()
	defer stallDumps.Unlock()
	if stallDumps.count >= stallDumpsMost || stallDumps.count > 0 && now.Sub(stallDumps.last) < stallDumpEvery {
		return false
	}
	stallDumps.last = now
	stallDumps.count++
	return true
}

// dumpStall writes a trace to a file if t failed by its deadline and MORI_TRACE_DIR is set.
func (e *Engine) dumpStall(t *transfer) {
	now := time.Now()
	if !errors.Is(t.failure(), fabric.ErrTimeout) || t.overdue(now) == nil {
		return
	}
	dir := config.Get(config.TraceDir)
	if dir == "" || !e.beginStall() {
		return
	}
	if !mayDumpStall(now) {
		e.stalls.Done()
		return
	}
	go func() {
		defer e.stalls.Done()
		name := filepath.Join(dir, fmt.Sprintf("mori-io-%s-%d-%d.json", fileName(e.self.Key), os.Getpid(), now.UnixMilli()))
		if err := e.writeTraceFile(name); err != nil {
			e.self.Log.Warn("no trace of the stall", "file", name, "reason", err)
			return
		}
		e.self.Log.Warn("trace of the stall written", "file", name)
	}()
}

// beginStall counts one more trace that Close waits for; false once the engine is closed.
func (e *Engine) beginStall() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed() {
		return false
	}
	e.stalls.Add(1)
	return true
}

// writeTraceFile makes a new file that nobody else can read.
func (e *Engine) writeTraceFile(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(e.WriteTrace(f), f.Close())
}

// fileName is s as a part of a file's name.
func fileName(s string) string {
	safe := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}
	return strings.Map(safe, s[:min(len(s), 64)])
}
