// SPDX-License-Identifier: MIT

package gputest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"mori/native/gpu"
)

// childEnv makes this program a child that tells what driver it finds.
const childEnv = "MORI_GPUTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		Main(m, tellDriver)
	}
	Main(m)
}

func tellDriver(*testing.M) int {
	d, err := gpu.Open(gpu.CUDA)
	if err != nil {
		println(err.Error())
		return 1
	}
	println(d.Path())
	return 0
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
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	out, err := cmd.CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != d.Path() {
		t.Errorf("the child has %q, %v; here it is %q", got, err, d.Path())
	}
	if !Real() && !strings.Contains(d.Path(), "emulated-gpu") {
		t.Errorf("%s is not emulated", d.Path())
	}
}
