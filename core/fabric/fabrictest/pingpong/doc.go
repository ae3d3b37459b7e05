// SPDX-License-Identifier: MIT

// Package pingpong measures messages between two processes as libfabric's fi_pingpong does: one
// message goes there, one of the same length comes back, and half of the time is a transfer. It
// runs fi_pingpong itself for comparison, where it is installed.
//
// A provider's test binary is both sides. Its TestMain calls Serve when the command of the
// benchmark says so:
//
//	func BenchmarkPingPong(b *testing.B) {
//		pingpong.Bench(b, pingpong.Config{Provider: open, Command: again, Reference: "shm"})
//	}
package pingpong
