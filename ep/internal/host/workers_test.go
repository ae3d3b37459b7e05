// SPDX-License-Identifier: MIT

package host

import (
	"errors"
	"sync"
	"testing"
)

// Each row is done once, whatever the number of threads and the size of rows.
func TestShareDoesEachRowOnce(t *testing.T) {
	for _, threads := range []workers{-1, 0, 1, 3} {
		for _, rowBytes := range []uint64{0, 1, pieceBytes / 2, 4 * pieceBytes} {
			for _, n := range []int{0, 1, 2, 17} {
				var mu sync.Mutex
				done := make([]int, n)
				threads.share(n, rowBytes, func(from, to int) {
					mu.Lock()
					defer mu.Unlock()
					for i := from; i < to; i++ {
						done[i]++
					}
				})
				for i, times := range done {
					if times != 1 {
						t.Errorf("%d threads, row %d of %d, each of %d bytes: done %d times", threads, i, n, rowBytes, times)
					}
				}
			}
		}
	}
}

func TestShareReturnsAnError(t *testing.T) {
	bad := errors.New("bad row")
	for _, threads := range []workers{1, 2} {
		err := threads.shareErr(9, pieceBytes, func(from, to int) error {
			if from <= 5 && 5 < to {
				return bad
			}
			return nil
		})
		if err != bad {
			t.Errorf("%d threads: %v, want %v", threads, err, bad)
		}
		if err := threads.shareErr(9, pieceBytes, func(int, int) error { return nil }); err != nil {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
}
