// SPDX-License-Identifier: MIT

package launch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"

	env "mori/core/config"
	"mori/ep/internal/plan"
)

// TuningVersion is the version of the file's format.
const TuningVersion = 1

// A Tuning has the launches that `mori tune ep` measured to be the best on kinds of devices. The
// file is JSON:
//
//	{"version": 1, "tables": [{"device": "NVIDIA H200", "ranks": 2, "rules": [
//	  {"call": "dispatch", "row_bytes": 14336, "tokens": 4096,
//	   "blocks": 64, "warps": 16, "us": 204.0}]}]}
//
// A call takes the rule with the nearest length of rows. Among these it takes the rule with the
// smallest number of tokens that is not below its own.
type Tuning struct {
	Version int         `json:"version"`
	Tables  list[Table] `json:"tables"`
}

// A Table is for one kind of device and number of ranks.
type Table struct {
	Device string     `json:"device"`
	Ranks  int        `json:"ranks"`
	Rules  list[Rule] `json:"rules"`
}

// A Rule is the best launch that was found for a call. The call took US microseconds.
type Rule struct {
	Call     string  `json:"call"`
	RowBytes int     `json:"row_bytes"`
	Tokens   int     `json:"tokens"`
	Blocks   int     `json:"blocks"`
	Warps    int     `json:"warps"`
	US       float64 `json:"us"`
}

// mostTuning is how long the text of a file may be, in bytes. A rule takes 100.
const mostTuning = 1 << 20

// TuningPath returns the path of the tables that ops use, and whether the environment names it.
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
	text, err := readRegular(path, mostTuning)
	if err != nil {
		return nil, fmt.Errorf("read tuning tables: %w", err)
	}
	t, err := ParseTuning(text)
	if err != nil {
		return nil, fmt.Errorf("read tuning tables of %s: %w", path, err)
	}
	return t, nil
}

// readRegular reads a regular file of at most limit bytes. A device has no end, and a FIFO may have
// no writer.
func readRegular(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file (%v): %w", path, info.Mode().Type(), plan.ErrConfig)
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s has more than %d bytes: %w", path, limit, plan.ErrConfig)
	}
	return text, err
}

// ParseTuning reads and checks the text of a file.
func ParseTuning(text []byte) (*Tuning, error) {
	if len(text) > mostTuning {
		return nil, fmt.Errorf("%d bytes, want at most %d: %w", len(text), mostTuning, plan.ErrConfig)
	}
	t := &Tuning{}
	if err := json.Unmarshal(text, t); err != nil {
		return nil, fmt.Errorf("%w: %w", plan.ErrConfig, err)
	}
	if t.Version != TuningVersion {
		return nil, fmt.Errorf("version %d, want %d: %w", t.Version, TuningVersion, plan.ErrConfig)
	}
	return t, nil
}

// A list is a JSON array whose elements are checked one by one. The first bad one ends it, so that
// text of "{},{}" does not take thirty times its length in memory.
type list[T interface{ check() error }] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *list[T]) UnmarshalJSON(text []byte) error {
	*l = nil
	dec := json.NewDecoder(bytes.NewReader(text))
	open, err := dec.Token()
	if open == nil && err == nil { // null
		return nil
	}
	if open != json.Delim('[') {
		return fmt.Errorf("%v instead of an array (%v): %w", open, err, plan.ErrConfig)
	}
	for dec.More() {
		var one T
		if err = dec.Decode(&one); err == nil {
			err = one.check()
		}
		if err != nil {
			return fmt.Errorf("element %d: %w", len(*l), err)
		}
		*l = append(*l, one)
	}
	return nil
}

func (t Table) check() error {
	if len(t.Rules) == 0 {
		return fmt.Errorf("table for %d x %q has no rules: %w", t.Ranks, t.Device, plan.ErrConfig)
	}
	return nil
}

func (r Rule) check() error {
	known := false
	for _, name := range callNames {
		known = known || r.Call == name
	}
	switch {
	case !known:
		return fmt.Errorf("call %q: must be one of %q: %w", r.Call, callNames, plan.ErrConfig)
	case r.RowBytes < 1 || r.Tokens < 1 || r.Blocks < 1 || r.Warps < 1:
		return fmt.Errorf("row_bytes %d, tokens %d, blocks %d, warps %d: must be above 0: %w",
			r.RowBytes, r.Tokens, r.Blocks, r.Warps, plan.ErrConfig)
	}
	return nil
}

// For returns the rules for a device and a number of ranks, or nil if it has no rules.
func (t *Tuning) For(device string, ranks int) []Rule {
	for _, table := range t.Tables {
		if table.Device == device && table.Ranks == ranks {
			return table.Rules
		}
	}
	return nil
}

// ruled returns the shape that rules have for a call, or nothing if they have none.
func ruled(rules []Rule, what Call, tokens int, rowBytes uint64) Shape {
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
		return Shape{}
	}
	return Shape{best.Blocks, best.Warps}
}

// better reports whether a rule for a tokens suits a call with n better than a rule for b.
func better(a, b, n int) bool {
	if (a >= n) != (b >= n) {
		return a >= n
	}
	return (a < b) == (a >= n)
}

// TuningFromEnv returns the tables of mode AUTO. It returns nil if the environment names no file
// and the default file does not exist.
func TuningFromEnv() (*Tuning, error) {
	path, named := TuningPath()
	t, err := ReadTuning(path)
	if !named && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return t, err
}
