// SPDX-License-Identifier: MIT

package host

import (
	"sync"
	"sync/atomic"
)

// pieceBytes is about how much one thread takes at a time. It is so much that taking it costs
// nothing, and so little that no thread is left with the last big piece.
const pieceBytes = 256 << 10

// workers is how many threads move and sum rows.
type workers int

// share calls work for the rows 0 to n, some at a time, on all threads, and returns when all rows
// are done.
func (w workers) share(n int, rowBytes uint64, work func(from, to int)) {
	piece := max(1, int(pieceBytes/max(1, rowBytes)))
	threads := min(max(1, int(w)), (n+piece-1)/piece)
	if threads <= 1 {
		if n > 0 {
			work(0, n)
		}
		return
	}
	var next atomic.Int64
	turn := func() {
		for {
			to := int(next.Add(int64(piece)))
			if to-piece >= n {
				return
			}
			work(to-piece, min(to, n))
		}
	}
	var others sync.WaitGroup
	for range threads - 1 {
		others.Add(1)
		go func() {
			defer others.Done()
			turn()
		}()
	}
	turn()
	others.Wait()
}

// shareErr is share for work that can fail. It returns one of the errors.
func (w workers) shareErr(n int, rowBytes uint64, work func(from, to int) error) error {
	var failed atomic.Pointer[error]
	w.share(n, rowBytes, func(from, to int) {
		if err := work(from, to); err != nil {
			failed.Store(&err)
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
