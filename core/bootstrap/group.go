// SPDX-License-Identifier: MIT

package bootstrap

import "context"

// A Group is the ranks that started together, as one of them sees them. It exchanges small blobs,
// and detects ranks that die.
//
// All ranks enter the collective calls in the same order. A rank makes one at a time; its other
// methods are safe for concurrent use. A call ends when ctx is done, or a little later; the error
// names the ranks that had not entered. After an error other than ErrBusy the group stays broken
// for all ranks, and Err returns the reason.
type Group interface {
	// Rank is this rank's number, Size how many there are.
	Rank() int
	Size() int

	// AllGather returns every rank's blob, in the order of ranks. Blobs may differ in length, of at
	// most 256 MiB, and 1 GiB in all. The caller may keep them, and write into them.
	AllGather(ctx context.Context, blob []byte) ([][]byte, error)

	// Broadcast returns the blob of rank root; the others' is not looked at.
	Broadcast(ctx context.Context, root int, blob []byte) ([]byte, error)

	// Barrier returns after every rank has entered it.
	Barrier(ctx context.Context) error

	// Failed is closed when a rank has died, or has left while others stay, whether or not a call is
	// on its way.
	Failed() <-chan struct{}

	// Err is nil, or the first failure: it wraps a *RankError if a rank has died or left.
	Err() error

	// Close leaves the group. It does not wait for the others, except up to two seconds for its own
	// messages to be sent. Later calls, and one in progress, return ErrClosed.
	Close() error
}
