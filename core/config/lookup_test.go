// SPDX-License-Identifier: MIT

package config

import (
	"slices"
	"testing"
)

func with(t *testing.T, env map[string]string) {
	t.Helper()
	SetLookup(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	t.Cleanup(func() { SetLookup(nil) })
}

func TestInt(t *testing.T) {
	with(t, map[string]string{"A": "7", "B": "x", "C": "99", "D": " 3 "})
	for _, c := range []struct {
		name string
		want int
		bad  bool
	}{{"A", 7, false}, {"B", 5, true}, {"C", 5, true}, {"D", 3, false}, {"UNSET", 5, false}} {
		got, err := Int(c.name, 5, 0, 50)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("Int(%s) = %d, %v; want %d, error %v", c.name, got, err, c.want, c.bad)
		}
	}
}

func TestFlags(t *testing.T) {
	with(t, map[string]string{"ON": "Yes", "OFF": "off", "ODD": "maybe"})
	if !Flag("ON", false) || Flag("OFF", true) || !Flag("ODD", false) || !Flag("UNSET", true) {
		t.Error("Flag misreads one of yes, off, maybe, unset")
	}
	if v, err := StrictFlag("ODD", false); v || err == nil {
		t.Errorf("StrictFlag(maybe) = %v, %v; want the default and an error", v, err)
	}
}

func TestVariablesAreReadLate(t *testing.T) {
	env := map[string]string{}
	with(t, env)
	env[IODeadline] = "12"
	for _, v := range Variables() {
		if v.Name == IODeadline && v.Value != "12" {
			t.Errorf("%s reads %q after it was set to 12", v.Name, v.Value)
		}
	}
}

func TestUnknown(t *testing.T) {
	SetEnviron(func() []string {
		return []string{"HOME=/", "MORI_IO_DEADLIN_MS=5", "MORI_IO_DEADLINE_MS=5", "MORI_TEST_PEER=1", "MORI_ENABLE_SDMA=1",
			"MORI_FROBNICATE=1"}
	})
	t.Cleanup(func() { SetEnviron(nil) })
	want := []string{
		`mori has no variable MORI_FROBNICATE: "mori env" lists them`,
		"mori has no variable MORI_IO_DEADLIN_MS: did you mean MORI_IO_DEADLINE_MS?",
	}
	if got := Unknown(); !slices.Equal(got, want) {
		t.Errorf("Unknown() = %q, want %q", got, want)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "axc", 1}, {"abc", "bc", 1}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
