// SPDX-License-Identifier: MIT

package stall

import (
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
)

func TestTracesOfStallsAreFew(t *testing.T) {
	var l Limit
	at, n := time.Unix(1e9, 0), 0
	for range 20 * most {
		if l.allows(at) {
			n++
		}
		at = at.Add(pause / 2)
	}
	if n != most {
		t.Errorf("%d traces, want %d", n, most)
	}
}

func TestFileNamesAreSafe(t *testing.T) {
	for in, want := range map[string]string{"a-1_B": "a-1_B", "../../etc": "______etc", "é\x00": "__", strings.Repeat("x", 99): strings.Repeat("x", 64)} {
		if got := fileName(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// Close waits for running writes. No trace is written after Close, or without a folder.
func TestCloseWaitsForTraces(t *testing.T) {
	dir := t.TempDir()
	x := Traces{Limit: new(Limit), Log: slog.New(slog.DiscardHandler), Key: "k",
		Trace: func(w io.Writer) error {
			_, err := io.WriteString(w, "{}")
			return err
		}}
	x.Write("", time.Now())
	x.Write(dir, time.Unix(1, 0))
	x.Close()
	x.Write(dir, time.Unix(100, 0))
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d files, want 1: %v", len(all), err)
	}
	if text, err := os.ReadFile(dir + "/" + all[0].Name()); err != nil || string(text) != "{}" {
		t.Errorf("%q, %v", text, err)
	}
}
