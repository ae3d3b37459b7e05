// SPDX-License-Identifier: MIT

package mem_test

import (
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/provider/mem"
)

func open(testing.TB) fabric.Provider { return mem.New(mem.Options{}) }

func TestFabric(t *testing.T) { fabrictest.Test(t, open) }

func BenchmarkFabric(b *testing.B) { fabrictest.Bench(b, open) }
