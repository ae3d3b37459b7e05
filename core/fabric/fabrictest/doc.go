// SPDX-License-Identifier: MIT

// Package fabrictest is the conformance suite of core/fabric. Every provider passes it, in a
// few lines of its own tests:
//
//	func TestFabric(t *testing.T) {
//		provider := func(testing.TB) fabric.Provider { return mem.New(mem.Options{}) }
//		fabrictest.Test(t, provider, fabric.EPMsg, fabric.EPRDM)
//	}
//
//	func BenchmarkFabric(b *testing.B) {
//		fabrictest.Bench(b, func(testing.TB) fabric.Provider { return mem.New(mem.Options{}) })
//	}
//
// The suite runs once for each endpoint type that the provider offers, under
// TestFabric/msg/group/case and TestFabric/rdm/group/case. Types that are named must be offered.
// Cases lists the cases.
//
// Each case is a subtest with a deadline (the process dies with all stacks if it passes), with its
// own Provider, and with two hosts on it that share nothing: two Fabrics, two Domains, joined by
// what travels in addresses, private data and MR.Raw alone. Memory is mapped outside of Go's heap
// and every byte is checked against a pattern that follows from its index. After each case no
// goroutine and no descriptor may be left; Main looks for those of a package's other tests.
//
// A case asserts what the comments of core/fabric promise of every provider, and nothing else. What
// they leave to the provider it asks Info for: capabilities, order and limits, and in Mode whether
// a denied access may end the connection, after which the case continues with a fresh pair. A case
// that needs a certain ability says why it skips.
package fabrictest
