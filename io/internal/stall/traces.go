// SPDX-License-Identifier: MIT

package stall

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Traces writes the traces of one engine.
type Traces struct {
	Limit *Limit
	Log   *slog.Logger
	Key   string                // of the engine
	Trace func(io.Writer) error // writes a trace of the engine

	mu      sync.Mutex
	closed  bool
	writing sync.WaitGroup
}

// Write writes a trace into the folder dir in a goroutine, if the limit allows one. It does nothing
// if dir is empty.
func (t *Traces) Write(dir string, now time.Time) {
	if dir == "" || !t.begin() {
		return
	}
	if !t.Limit.allows(now) {
		t.writing.Done()
		return
	}
	go func() {
		defer t.writing.Done()
		name := filepath.Join(dir, fmt.Sprintf("mori-io-%s-%d-%d.json", fileName(t.Key), os.Getpid(),
			now.UnixMilli()))
		if err := writeNew(name, t.Trace); err != nil {
			t.Log.Warn("no trace of the stall", "file", name, "reason", err)
			return
		}
		t.Log.Warn("trace of the stall written", "file", name)
	}()
}

// begin counts a trace that Close waits for. It returns false once t is closed.
func (t *Traces) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.writing.Add(1)
	}
	return !t.closed
}

// Close waits for running writes and prevents further ones.
func (t *Traces) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.writing.Wait()
}

// writeNew creates a file that only this user can read.
func writeNew(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// fileName makes s safe as part of a file name.
func fileName(s string) string {
	safe := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}
	return strings.Map(safe, s[:min(len(s), 64)])
}
