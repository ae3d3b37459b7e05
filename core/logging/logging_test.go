// SPDX-License-Identifier: MIT

package logging

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestLineFormat(t *testing.T) {
	var out bytes.Buffer
	lv := new(slog.LevelVar)
	lv.Set(slog.LevelWarn)
	log := slog.New(&handler{module: "io", level: lv, out: newOutput(&out)}).With("peer", "b")
	log.Info("hidden")
	log.Warn("path lost", "uid", 7)
	want := regexp.MustCompile(`^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\] \[\d+\] \[io\] \[warn\] path lost peer=b uid=7\n$`)
	if !want.Match(out.Bytes()) {
		t.Errorf("line %q does not match %v", out.String(), want)
	}
}

func TestParseLevelDefaultsToWarn(t *testing.T) {
	for text, want := range map[string]slog.Level{"TRACE": LevelTrace, "Warn": slog.LevelWarn, "": slog.LevelWarn, "loud": slog.LevelWarn, "error": slog.LevelError, "critical": LevelCritical} {
		if got := ParseLevel(text); got != want {
			t.Errorf("ParseLevel(%q) = %v, want %v", text, got, want)
		}
	}
}

// A lockedBuffer takes lines of several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.b.String(), "\n"), "\n")
}

// A peer that dies with many transfers under way is one line, and a second with their number.
func TestRepeatedErrorsAreCounted(t *testing.T) {
	var out lockedBuffer
	sink := newOutput(&out)
	sink.repeats.every = 500 * time.Millisecond
	log := slog.New(&handler{module: "io", level: new(slog.LevelVar), out: sink})
	for uid := range 2000 {
		log.Error("transfer failed", "reason", fmt.Sprintf("transfer %d of %d bytes at 0x%x: broken", uid, uid*4096, uid<<20))
	}
	log.Error("transfer failed", "peer", "decode-1", "reason", "broken")
	log.Error("transfer failed", "peer", "decode-2", "reason", "broken")
	log.Info("hello")
	log.Info("hello")
	deadline := time.Now().Add(30 * time.Second)
	for len(out.lines()) < 6 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	lines := out.lines()
	if len(lines) != 6 {
		t.Fatalf("%d lines, want 6: one of 2000, two of two peers, two that are no warnings, and a count:\n%s",
			len(lines), strings.Join(lines, "\n"))
	}
	if !strings.Contains(lines[0], "transfer 0 of") || !strings.Contains(lines[5], "(and 1999 more like it within 500ms)") {
		t.Errorf("first line %q, last %q", lines[0], lines[5])
	}
}

func TestWithoutNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"transfer 7 at 0x7f3a10 of prefill-12": "transfer # at # of prefill-12",
		"10.0.0.7:4242: 3 of 4":                "#.#.#.#:#: # of #",
		"mlx5_0 uid=99":                        "mlx5_0 uid=#",
	} {
		if got := withoutNumbers(text); got != want {
			t.Errorf("withoutNumbers(%q) = %q, want %q", text, got, want)
		}
	}
}

// Kinds of lines take a bounded amount of memory, whatever is logged.
func TestKindsAreBounded(t *testing.T) {
	l := limiter{every: time.Hour}
	for i := range 5 * maxKinds {
		l.admit(fmt.Sprintf("kind k%d", i), "peer", nil)
		l.admit("one", fmt.Sprintf("peer%d", i), nil)
	}
	if len(l.kinds) > maxKinds {
		t.Errorf("%d kinds are kept, want %d at most", len(l.kinds), maxKinds)
	}
}
