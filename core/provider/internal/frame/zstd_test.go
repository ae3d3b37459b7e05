// SPDX-License-Identifier: MIT

//go:build cgo

package frame

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestACodecLivesUntilItsCallReturns uses otherwise unreachable codecs while the garbage collector
// runs. zstd's binding frees the memory of a C call once its Go object is garbage, even during the
// call.
func TestACodecLivesUntilItsCallReturns(t *testing.T) {
	var done atomic.Bool
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for !done.Load() {
			runtime.GC()
		}
	}()
	plain := halfBytes(1 << 20)
	out := make([]byte, len(plain))
	for range 200 {
		compressed := compress(t, plain)
		if n, err := newCodec().DecompressInto(out, compressed); err != nil || n != len(plain) {
			t.Fatal(n, err)
		}
	}
	done.Store(true)
	<-collected
}
