// SPDX-License-Identifier: MIT

package ep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	env "mori/core/config"
)

// tuningVersion is that of the file's form.
const tuningVersion = 1

// A Tuning has what was measured to be the best launch on some kind of device, by `mori tune ep`. The file is JSON:
//
//	{"version": 1, "tables": [{"device": "NVIDIA H200", "ranks": 2, "rules": [
//	  {"call": "dispatch", "row_bytes": 14336, "tokens": 4096, "blocks": 64, "warps": 16, "us": 204.0}]}]}
//
// A call takes the rule of the nearest length of rows, and of these the one for the least number of tokens that is not below its own.
type Tuning struct {
	Version int     `json:"version"`
	Tables  []Table `json:"tables"`
}

// A Table is for one kind of device and number of ranks.
type Table struct {
	Device string `json:"device"`
	Ranks  int    `json:"ranks"`
	Rules  []Rule `json:"rules"`
}

// A Rule is the best launch that was found for a call, which took US microseconds.
type Rule struct {
	Call     string  `json:"call"`
	RowBytes int     `json:"row_bytes"`
	Tokens   int     `json:"tokens"`
	Blocks   int     `json:"blocks"`
	Warps    int     `json:"warps"`
	US       float64 `json:"us"`
}

// mostTuning is how long a file may be.
const mostTuning = 16 << 20

// TuningPath is where the tables are that ops use, and whether somebody said so.
func TuningPath() (path string, named bool) {
	if path = env.Get(env.EPTuning); path != "" {
		return path, true
	}
	folder := env.Get("XDG_CONFIG_HOME")
	if folder == "" {
		folder = filepath.Join(env.Get("HOME"), ".config")
	}
	return filepath.Join(folder, "mori", "ep-tuning.json"), false
}

// ReadTuning reads and checks a file.
func ReadTuning(path string) (*Tuning, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read tuning tables: %w", err)
	}
	if info.Size() > mostTuning {
		return nil, fmt.Errorf("read tuning tables: %s has %d bytes, at most %d can be: %w", path, info.Size(), mostTuning, ErrConfig)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read tuning tables: %w", err)
	}
	t, err := ParseTuning(text)
	if err != nil {
		return nil, fmt.Errorf("read tuning tables of %s: %w", path, err)
	}
	return t, nil
}

// ParseTuning reads and checks the text of a file.
func ParseTuning(text []byte) (*Tuning, error) {
	t := &Tuning{}
	if err := json.Unmarshal(text, t); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if t.Version != tuningVersion {
		return nil, fmt.Errorf("version %d, want %d: %w", t.Version, tuningVersion, ErrConfig)
	}
	for _, table := range t.Tables {
		for i, r := range table.Rules {
			if err := r.check(); err != nil {
				return nil, fmt.Errorf("rule %d for %d x %q: %w", i, table.Ranks, table.Device, err)
			}
		}
	}
	return t, nil
}

func (r Rule) check() error {
	known := false
	for _, name := range callNames {
		known = known || r.Call == name
	}
	switch {
	case !known:
		return fmt.Errorf("call %q: must be one of %q: %w", r.Call, callNames, ErrConfig)
	case r.RowBytes < 1 || r.Tokens < 1 || r.Blocks < 1 || r.Warps < 1:
		return fmt.Errorf("row_bytes %d, tokens %d, blocks %d, warps %d: must be above 0: %w", r.RowBytes, r.Tokens, r.Blocks, r.Warps, ErrConfig)
	}
	return nil
}

// For returns the rules for a device and a number of ranks, nil if there are none.
func (t *Tuning) For(device string, ranks int) []Rule {
	for _, table := range t.Tables {
		if table.Device == device && table.Ranks == ranks {
			return table.Rules
		}
	}
	return nil
}

// ruled is the launch that rules have for a call, nothing if they have none.
func ruled(rules []Rule, what call, tokens int, rowBytes uint64) Launch {
	var best *Rule
	far := func(r *Rule) float64 { return math.Abs(math.Log(float64(r.RowBytes) / float64(max(rowBytes, 1)))) }
	for i := range rules {
		r := &rules[i]
		if r.Call != callNames[what] {
			continue
		}
		if best == nil || far(r) < far(best) || far(r) == far(best) && better(r.Tokens, best.Tokens, tokens) {
			best = r
		}
	}
	if best == nil {
		return Launch{}
	}
	return Launch{best.Blocks, best.Warps}
}

// better says whether a rule for a tokens suits a call with n better than one for b.
func better(a, b, n int) bool {
	if (a >= n) != (b >= n) {
		return a >= n
	}
	return (a < b) == (a >= n)
}

// tuningFromEnv is the tables of mode AUTO. Where nobody named a file there may be none.
func tuningFromEnv() (*Tuning, error) {
	path, named := TuningPath()
	t, err := ReadTuning(path)
	if !named && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return t, err
}
