// SPDX-License-Identifier: MIT

package config

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// A Lookup returns the current value of an environment variable and whether it is set.
type Lookup func(name string) (string, bool)

var lookup atomic.Pointer[Lookup]

// SetLookup replaces the function that reads the environment; nil restores os.LookupEnv.
func SetLookup(f Lookup) {
	if f == nil {
		lookup.Store(nil)
		return
	}
	lookup.Store(&f)
}

// Get returns the variable's current value, or "" if it is not set.
func Get(name string) string {
	if f := lookup.Load(); f != nil {
		if v, ok := (*f)(name); ok {
			return v
		}
		return ""
	}
	return os.Getenv(name)
}

// Flag reads a boolean: 1/true/on/yes or 0/false/off/no, in any case. Other text counts as true. If
// the variable is not set, Flag returns def.
func Flag(name string, def bool) bool {
	switch v := strings.ToLower(strings.TrimSpace(Get(name))); v {
	case "":
		return def
	case "0", "false", "off", "no":
		return false
	default:
		return true
	}
}

// StrictFlag is Flag, but returns def and an error for unknown text.
func StrictFlag(name string, def bool) (bool, error) {
	switch v := strings.ToLower(strings.TrimSpace(Get(name))); v {
	case "":
		return def, nil
	case "0", "false", "off", "no":
		return false, nil
	case "1", "true", "on", "yes":
		return true, nil
	default:
		return def, fmt.Errorf("%s=%q: want one of 1, true, on, yes, 0, false, off, no", name, v)
	}
}

// Int reads an integer within lo..hi. It returns def if the variable is not set, and def and an
// error for any other text.
func Int(name string, def, lo, hi int) (int, error) {
	v := strings.TrimSpace(Get(name))
	if v == "" {
		return def, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < lo || n > hi {
		return def, fmt.Errorf("%s=%q: want an integer from %d to %d", name, v, lo, hi)
	}
	return n, nil
}
