// SPDX-License-Identifier: MIT

package shm

import (
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
)

var modes = map[string]Options{
	"cma":     {Log: quiet, kernel: true},
	"memmove": {Log: quiet},
	"stream":  {Log: quiet, ForceStream: true},
}

func TestFabric(t *testing.T) {
	for name, opts := range modes {
		t.Run(name, func(t *testing.T) {
			fabrictest.Test(t, func(testing.TB) fabric.Provider { return New(opts) })
		})
	}
}

func TestHoles(t *testing.T) {
	for name, opts := range modes {
		t.Run(name, func(t *testing.T) {
			fabrictest.TestHoles(t, func(testing.TB) fabric.Provider { return New(opts) })
		})
	}
}

func BenchmarkFabric(b *testing.B) {
	for name, opts := range modes {
		b.Run(name, func(b *testing.B) {
			fabrictest.Bench(b, func(testing.TB) fabric.Provider { return New(opts) })
		})
	}
}
