// SPDX-License-Identifier: MIT

//go:build cgo

package stream

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestACodecLivesUntilItsCallReturns uses codecs that nothing else refers to while the collector runs. zstd's binding frees what the C call
// works with once its Go side is garbage, also in the midst of the call.
func TestACodecLivesUntilItsCallReturns(t *testing.T) {
	var done atomic.Bool
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for !done.Load() {
			runtime.GC()
		}
	}()
	plain := thinBytes(1 << 20)
	out := make([]byte, len(plain))
	for range 200 {
		packed := pack(t, plain)
		if n, err := newCodec().DecompressInto(out, packed); err != nil || n != len(plain) {
			t.Fatal(n, err)
		}
	}
	done.Store(true)
	<-collected
}
