// SPDX-License-Identifier: MIT

package threads

import (
	"os"
	"strings"
	"testing"
)

func TestProbeGetsWhatThereIs(t *testing.T) {
	for _, wanted := range []int{-1, 0, 1, 40} {
		if got, err := Probe(wanted); got != max(wanted, 0) || err != nil {
			t.Errorf("%d of %d threads, %v", got, wanted, err)
		}
	}
}

func TestProbeLeavesNoMapping(t *testing.T) {
	mappings := func() int {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(maps), "\n")
	}
	_, _ = Probe(8)
	before := mappings()
	_, _ = Probe(64)
	if n := mappings() - before; n > 32 { // the runtime may add some
		t.Errorf("%d more mappings", n)
	}
}
