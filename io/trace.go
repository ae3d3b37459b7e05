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
		all = append(all, meter.Traced{Engine: e.self.Key,
			Records: append(e.meters.recent.Records(), e.store.openRecords(now, openTraced)...)})
	}
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost"
	}
	return meter.WriteTrace(w, os.Getpid(),
		fmt.Sprintf("mori.io on %s, pid %d", hostname, os.Getpid()), all, codeName)
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

// mayDumpStall reports whether it is time for one more.
func mayDumpStall(now time.Time) bool {
	stallDumps.Lock()
	defer stallDumps.Unlock()
	if stallDumps.count >= stallDumpsMost ||
		stallDumps.count > 0 && now.Sub(stallDumps.last) < stallDumpEvery {
		return false
	}
	stallDumps.last = now
	stallDumps.count++
	return true
}

// stallTraces writes traces to files when transfers miss their deadline. The zero value is ready.
type stallTraces struct {
	mu      sync.Mutex
	closed  bool
	writing sync.WaitGroup
}

// write writes a trace in a goroutine if t failed by its deadline and MORI_TRACE_DIR is set.
func (s *stallTraces) write(t *transfer, now time.Time) {
	if !errors.Is(t.failure(), fabric.ErrTimeout) || t.overdue(now) == nil {
		return
	}
	dir := config.Get(config.TraceDir)
	if dir == "" || !s.begin() {
		return
	}
	if !mayDumpStall(now) {
		s.writing.Done()
		return
	}
	e := t.session.engine
	go func() {
		defer s.writing.Done()
		name := filepath.Join(dir, fmt.Sprintf("mori-io-%s-%d-%d.json", fileName(e.self.Key),
			os.Getpid(), now.UnixMilli()))
		if err := writeNew(name, e.WriteTrace); err != nil {
			e.self.Log.Warn("no trace of the stall", "file", name, "reason", err)
			return
		}
		e.self.Log.Warn("trace of the stall written", "file", name)
	}()
}

// begin counts one more trace that close waits for; false once s is closed.
func (s *stallTraces) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.writing.Add(1)
	}
	return !s.closed
}

// close waits for the traces that are being written. No more are.
func (s *stallTraces) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.writing.Wait()
}

// writeNew makes a new file that only this user can read.
func writeNew(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
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
