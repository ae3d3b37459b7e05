// SPDX-License-Identifier: MIT

package topology

import (
	"runtime"
	"slices"
	"testing"
)

func TestCPUs(t *testing.T) {
	cpus, err := CPUs()
	if err != nil {
		t.Fatal(err)
	}
	if len(cpus) != runtime.NumCPU() || !slices.IsSorted(cpus) {
		t.Errorf("processors %v, want %d in order", cpus, runtime.NumCPU())
	}
}
