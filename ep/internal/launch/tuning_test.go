// SPDX-License-Identifier: MIT

package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mori/core/decode/decodetest"
	"mori/ep/internal/plan"
)

const oneTable = `{"version": 1, "tables": [{"device": "NVIDIA H200", "ranks": 2, "rules": [
  {"call": "dispatch", "row_bytes": 7168, "tokens": 128, "blocks": 24, "warps": 4, "us": 22},
  {"call": "dispatch", "row_bytes": 7168, "tokens": 4096, "blocks": 64, "warps": 16, "us": 126},
  {"call": "dispatch", "row_bytes": 14336, "tokens": 4096, "blocks": 128, "warps": 8, "us": 196},
  {"call": "combine", "row_bytes": 14336, "tokens": 4096, "blocks": 132, "warps": 16, "us": 258}]}]}`

func TestARuleOfTheNearestRowsAndTheNextTokensIsTaken(t *testing.T) {
	tuning, err := ParseTuning([]byte(oneTable))
	if err != nil {
		t.Fatal(err)
	}
	rules := tuning.For("NVIDIA H200", 2)
	for _, c := range []struct {
		what     Call
		tokens   int
		rowBytes uint64
		want     Shape
	}{
		{Dispatch, 1, 7168, Shape{24, 4}},
		{Dispatch, 128, 7168, Shape{24, 4}},
		{Dispatch, 129, 7168, Shape{64, 16}},
		{Dispatch, 8192, 7168, Shape{64, 16}},
		{Dispatch, 1, 12000, Shape{128, 8}},
		{Dispatch, 1, 1, Shape{24, 4}},
		{Dispatch, 1, 0, Shape{24, 4}},
		{Combine, 5, 7168, Shape{132, 16}},
		{CombineInPlace, 5, 7168, Shape{}},
	} {
		if got := ruled(rules, c.what, c.tokens, c.rowBytes); got != c.want {
			t.Errorf("%s of %d x %d bytes: %+v, want %+v", callNames[c.what], c.tokens, c.rowBytes, got, c.want)
		}
	}
	if tuning.For("NVIDIA H200", 8) != nil || tuning.For("NVIDIA H100", 2) != nil {
		t.Error("there are rules for what was not measured")
	}
}

func TestBadTablesAreRefused(t *testing.T) {
	for text, why := range map[string]string{
		"":              "unexpected end",
		"[]":            "cannot unmarshal",
		"{}":            "version 0, want 1",
		`{"version":2}`: "version 2, want 1",
		strings.Replace(oneTable, `"combine"`, `"reduce"`, 1):      `call "reduce": must be one of`,
		strings.Replace(oneTable, `"blocks": 24`, `"blocks":0`, 1): "blocks 0, warps 4: must be above 0",
	} {
		if _, err := ParseTuning([]byte(text)); !errors.Is(err, plan.ErrConfig) || !strings.Contains(err.Error(), why) {
			t.Errorf("%.40q: %v, want %q", text, err, why)
		}
	}
}

// What is no regular file, or too long, is refused without being read: a FIFO has no writer, and
// /dev/zero has no end.
func TestReadTuningReadsRegularFilesOnly(t *testing.T) {
	folder := t.TempDir()
	fifo, huge := filepath.Join(folder, "fifo"), filepath.Join(folder, "huge")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(huge, nil, 0o600), os.Truncate(huge, 1<<40)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, huge, "/dev/zero", folder} {
		done := make(chan error, 1)
		go func() {
			decodetest.Bounded(t, mostTuning, func() {
				_, err := ReadTuning(path)
				done <- err
			})
		}()
		select {
		case err := <-done:
			if !errors.Is(err, plan.ErrConfig) {
				t.Errorf("%s: %v, want %v", path, err, plan.ErrConfig)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: still being read after 20 s", path)
		}
	}
}

// Text of many empty elements ends at the first of them.
func TestTuningTakesNoMoreMemoryThanItsText(t *testing.T) {
	for name, text := range map[string]string{
		"rules that say nothing":  `{"version":1,"tables":[{"rules":[` + strings.Repeat("{},", 300_000) + `{}]}]}`,
		"tables that say nothing": `{"version":1,"tables":[` + strings.Repeat("{},", 300_000) + `{}]}`,
		"rules that are nothing":  `{"version":1,"tables":[{"rules":[` + strings.Repeat("null,", 200_000) + `null]}]}`,
		"more than a MiB":         `{"version":1,"x":"` + strings.Repeat("x", mostTuning) + `"}`,
	} {
		decodetest.Bounded(t, len(text), func() {
			if _, err := ParseTuning([]byte(text)); !errors.Is(err, plan.ErrConfig) {
				t.Errorf("%s: %v, want %v", name, err, plan.ErrConfig)
			}
		})
	}
}

func FuzzParseTuning(f *testing.F) {
	f.Add([]byte(oneTable))
	f.Add([]byte(`{"version":1,"tables":[{"rules":[{"call":"combine","row_bytes":1,"tokens":1,"blocks":1,"warps":1}]}]}`))
	f.Add([]byte(`{"version":1,"tables":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var tuning *Tuning
		var err error
		decodetest.Bounded(t, len(text), func() { tuning, err = ParseTuning(text) })
		if err != nil {
			return
		}
		for _, table := range tuning.Tables {
			for what := range callNames {
				if l := ruled(table.Rules, Call(what), 7, 4096); l != (Shape{}) && (l.Blocks < 1 || l.Warps < 1) {
					t.Errorf("a rule for %s: %+v", callNames[what], l)
				}
			}
		}
	})
}
