// SPDX-License-Identifier: MIT

// Package decodetest measures what decoders of untrusted bytes allocate. The resident set does not
// show it, because a fresh mapping uses no memory until it is written.
package decodetest

import (
	"runtime"
	"testing"
)

// The bound on what a process may allocate for bytes from a peer that has not authenticated itself.
const (
	PerByte = 4
	Slack   = 1 << 20
)

// Allocated returns how many bytes the process allocates on the Go heap while f runs.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Bounded runs f, which decodes the given number of received bytes. It fails the test if the
// process allocates more than the bound meanwhile.
func Bounded(t testing.TB, received int, f func()) {
	t.Helper()
	if n, most := Allocated(f), uint64(PerByte*received+Slack); n > most {
		t.Errorf("%d bytes were allocated for %d bytes received, want at most %d", n, received, most)
	}
}
