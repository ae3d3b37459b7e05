// SPDX-License-Identifier: MIT

package logging

import (
	"bytes"
	"log/slog"
	"regexp"
	"testing"
)

func TestLineFormat(t *testing.T) {
	var out bytes.Buffer
	lv := new(slog.LevelVar)
	lv.Set(slog.LevelWarn)
	log := slog.New(&handler{module: "io", level: lv, out: &out}).With("peer", "b")
	log.Info("hidden")
	log.Warn("path lost", "uid", 7)
	want := regexp.MustCompile(`^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\] \[\d+\] \[io\] \[warn\] path lost peer=b uid=7\n$`)
	if !want.Match(out.Bytes()) {
		t.Errorf("line %q does not match %v", out.String(), want)
	}
}

func TestParseLevelDefaultsToError(t *testing.T) {
	for text, want := range map[string]slog.Level{"TRACE": LevelTrace, "Warn": slog.LevelWarn, "": slog.LevelError, "loud": slog.LevelError, "critical": LevelCritical} {
		if got := ParseLevel(text); got != want {
			t.Errorf("ParseLevel(%q) = %v, want %v", text, got, want)
		}
	}
}
