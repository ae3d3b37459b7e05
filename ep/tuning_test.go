// SPDX-License-Identifier: MIT

package ep

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	env "mori/core/config"
	"mori/core/decode/decodetest"
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
		what     call
		tokens   int
		rowBytes uint64
		want     Launch
	}{
		{callDispatch, 1, 7168, Launch{24, 4}},
		{callDispatch, 128, 7168, Launch{24, 4}},
		{callDispatch, 129, 7168, Launch{64, 16}},
		{callDispatch, 8192, 7168, Launch{64, 16}},
		{callDispatch, 1, 12000, Launch{128, 8}},
		{callDispatch, 1, 1, Launch{24, 4}},
		{callDispatch, 1, 0, Launch{24, 4}},
		{callCombine, 5, 7168, Launch{132, 16}},
		{callCombineInPlace, 5, 7168, Launch{}},
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
		if _, err := ParseTuning([]byte(text)); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), why) {
			t.Errorf("%.40q: %v, want %q", text, err, why)
		}
	}
}

func TestTheEnvironmentSaysHowLaunchesAreChosen(t *testing.T) {
	folder := t.TempDir()
	good, bad := filepath.Join(folder, "good"), filepath.Join(folder, "bad")
	for path, text := range map[string]string{good: oneTable, bad: "{"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ours := filepath.Join(folder, "mori", "ep-tuning.json")
	if err := errors.Join(os.Mkdir(filepath.Dir(ours), 0o700), os.WriteFile(ours, []byte(oneTable), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		set   map[string]string
		table bool
		fails error
	}{
		"nothing":           {nil, false, nil},
		"by hand":           {map[string]string{env.EPLaunchConfigMode: "MANUAL", env.EPTuning: bad}, false, nil},
		"a file":            {map[string]string{env.EPLaunchConfigMode: "AUTO", env.EPTuning: good}, true, nil},
		"the usual file":    {map[string]string{env.EPLaunchConfigMode: "AUTO", "XDG_CONFIG_HOME": folder}, true, nil},
		"no file":           {map[string]string{env.EPLaunchConfigMode: "AUTO", "HOME": folder}, false, nil},
		"no file of a name": {map[string]string{env.EPLaunchConfigMode: "AUTO", env.EPTuning: folder + "/none"}, false, fs.ErrNotExist},
		"a bad file":        {map[string]string{env.EPLaunchConfigMode: "AUTO", env.EPTuning: bad}, false, ErrConfig},
		"another word":      {map[string]string{env.EPLaunchConfigMode: "SOMETIMES"}, false, ErrConfig},
		"less than nothing": {map[string]string{env.EPBlocks: "-1"}, false, ErrConfig},
	} {
		env.SetLookup(func(name string) (string, bool) { v, ok := c.set[name]; return v, ok })
		var o Options
		err := o.launchesFromEnv()
		env.SetLookup(nil)
		if !errors.Is(err, c.fails) || (o.Tuning != nil) != c.table {
			t.Errorf("%s: %+v, %v", name, o.Tuning, err)
		}
	}
}

// What is no regular file, or too long, is refused without being read: a FIFO has no writer, and /dev/zero has no end.
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
			if !errors.Is(err, ErrConfig) {
				t.Errorf("%s: %v, want %v", path, err, ErrConfig)
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
			if _, err := ParseTuning([]byte(text)); !errors.Is(err, ErrConfig) {
				t.Errorf("%s: %v, want %v", name, err, ErrConfig)
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
				if l := ruled(table.Rules, call(what), 7, 4096); l != (Launch{}) && (l.Blocks < 1 || l.Warps < 1) {
					t.Errorf("a rule for %s: %+v", callNames[what], l)
				}
			}
		}
	})
}
