// SPDX-License-Identifier: MIT

// Package fabrictest is the conformance suite of core/fabric. Every provider passes it, in five lines of its own tests:
//
//	func TestFabric(t *testing.T) {
//		fabrictest.Test(t, func(testing.TB) fabric.Provider { return mem.New(mem.Options{}) })
//	}
//
//	func BenchmarkFabric(b *testing.B) {
//		fabrictest.Bench(b, func(testing.TB) fabric.Provider { return mem.New(mem.Options{}) })
//	}
//
// Each case is a subtest with a deadline (the process dies with all stacks if it passes), with its own Provider, and with two hosts on it that
// share nothing: two Fabrics, two Domains, joined by what travels in addresses, private data and MR.Raw alone. Memory is mapped
// outside of Go's heap and every byte is checked against a pattern that follows from its index. After each case no
// goroutine and no descriptor may be left.
//
// A case that needs a certain ability asks Info for it, and says why it skips.
package fabrictest
