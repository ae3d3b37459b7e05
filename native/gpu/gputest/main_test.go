// SPDX-License-Identifier: MIT

package gputest

import (
	"os"
	"strings"
	"testing"

	"mori/native/gpu"
)

// childEnv makes this program a child that tells what driver it finds.
const childEnv = "MORI_GPUTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		Main(m, playRole)
	}
	Main(m)
}

func open(t *testing.T) *gpu.Driver {
	t.Helper()
	Need(t)
	d, err := gpu.Open(gpu.CUDA)
	if err != nil {
		t.Skip(err) // it is AMD's
	}
	return d
}

// TestChildHasTheSame: a process that a test starts has the driver that the test has.
func TestChildHasTheSame(t *testing.T) {
	d := open(t)
	c := startChild(t, "driver")
	got := c.line()
	if text, err := c.end(); err != nil || got != d.Path() {
		t.Errorf("the child has %q, %v; here it is %q\n%s", got, err, d.Path(), text)
	}
	if !Real() && !strings.Contains(d.Path(), "emulated-gpu") {
		t.Errorf("%s is not emulated", d.Path())
	}
}
