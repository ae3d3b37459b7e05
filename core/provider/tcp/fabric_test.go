// SPDX-License-Identifier: MIT

package tcp_test

import (
	"testing"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest"
	"mori/core/provider/tcp"
)

func open(testing.TB) fabric.Provider { return tcp.New(tcp.Options{}) }

func TestFabric(t *testing.T) { fabrictest.Test(t, open) }

func TestFabricOverOneLink(t *testing.T) {
	fabrictest.Test(t, func(testing.TB) fabric.Provider { return tcp.New(tcp.Options{Links: 1}) })
}

func TestHoles(t *testing.T) {
	fabrictest.TestHoles(t, open)
	t.Run("with checksums", func(t *testing.T) {
		fabrictest.TestHoles(t, func(testing.TB) fabric.Provider { return tcp.New(tcp.Options{Sums: true}) })
	})
}

func BenchmarkFabric(b *testing.B) { fabrictest.Bench(b, open) }
