// SPDX-License-Identifier: MIT

package mem_test

import (
	"context"
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/provider/mem"
)

func open(testing.TB) fabric.Provider { return mem.New(mem.Options{}) }

func TestFabric(t *testing.T) { fabrictest.Test(t, open, fabric.EPMsg, fabric.EPRDM) }

func BenchmarkFabric(b *testing.B) { fabrictest.Bench(b, open) }

// A datagrams is a provider that offers endpoints of type EPRDM only.
type datagrams struct{ fabric.Provider }

func (p datagrams) GetInfo(ctx context.Context, node, service string, hints *fabric.Info) ([]*fabric.Info, error) {
	hints = hints.Clone()
	hints.EPType = fabric.EPRDM
	return p.Provider.GetInfo(ctx, node, service, hints)
}

func BenchmarkDatagrams(b *testing.B) {
	fabrictest.Bench(b, func(tb testing.TB) fabric.Provider { return datagrams{open(tb)} })
}
