// SPDX-License-Identifier: MIT

package gputest

import (
	"os"
	"strings"
	"testing"
)

// childEnv makes this program a child that prints which driver it finds.
const childEnv = "MORI_GPUTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		Main(m, playRole)
	}
	Main(m)
}

// TestChildHasTheSame: a process that a test starts has the driver that the test has.
func TestChildHasTheSame(t *testing.T) {
	d := newRig(t, 0).Driver
	c := startChild(t, "driver")
	got := c.line()
	if text, err := c.end(); err != nil || got != d.Path() {
		t.Errorf("the child has %q, %v; here it is %q\n%s", got, err, d.Path(), text)
	}
	if !Real() && !strings.Contains(d.Path(), "emulated-gpu") {
		t.Errorf("%s is not emulated", d.Path())
	}
}
