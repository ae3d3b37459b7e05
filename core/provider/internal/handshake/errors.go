// SPDX-License-Identifier: MIT

package handshake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"mori/core/fabric"
)

// Bound returns a context that ends at ctx's deadline, or after DefaultWait if it has none, or when
// ended is closed. cause then says why.
func Bound(ctx context.Context, ended <-chan struct{}, cause func() error) (context.Context, context.CancelFunc) {
	cancelTime := context.CancelFunc(func() {})
	if _, ok := ctx.Deadline(); !ok {
		ctx, cancelTime = context.WithTimeout(ctx, DefaultWait)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	go func() {
		select {
		case <-ended:
			cancel(endedError{cause()})
		case <-stop:
		}
	}()
	return ctx, func() {
		close(stop)
		cancel(nil)
		cancelTime()
	}
}

// Error names the peer and wraps the cause of a failed handshake as a fabric error. ctx is the
// handshake's, from Bound.
func Error(ctx context.Context, to fabric.Addr, err error) error {
	var reject *fabric.RejectError
	var ended endedError
	switch cause := context.Cause(ctx); {
	case errors.As(err, &reject):
		return err
	case errors.As(cause, &ended):
		return fmt.Errorf("connect to %s: %w", to, ended.cause)
	case errors.Is(cause, context.DeadlineExceeded), isTimeout(err):
		return fmt.Errorf("connect to %s: no answer in time: %w", to, timeoutError{})
	case cause != nil:
		return fmt.Errorf("connect to %s: %w", to, canceledError{cause})
	}
	errno := fabric.ErrnoOf(err)
	switch errno {
	case fabric.ErrOther, fabric.Errno(syscall.EPIPE):
		// The peer closed during the handshake: io.EOF for a reader, EPIPE for a writer.
		errno = fabric.ErrConnReset
	}
	return fmt.Errorf("connect to %s: %w", to, causeError{err, errno})
}

// isTimeout reports whether a socket's deadline has passed, which may be seen before ctx is done. A
// net.Dialer's error is another one than that of reads and writes.
func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// An endedError says that the endpoint ended during its handshake.
type endedError struct{ cause error }

func (e endedError) Error() string { return e.cause.Error() }

// A causeError is a system's error with the Errno for it.
type causeError struct {
	err   error
	errno fabric.Errno
}

func (e causeError) Error() string { return e.err.Error() }
func (e causeError) Unwrap() error { return e.errno }

// Is reports ErrBusy, too: another attempt may succeed.
func (e causeError) Is(target error) bool {
	return target == fabric.ErrBusy && errors.Is(e.err, target)
}

// A timeoutError is both fabric.ErrTimeout and context.DeadlineExceeded.
type timeoutError struct{}

func (timeoutError) Error() string        { return fabric.ErrTimeout.Error() }
func (timeoutError) Unwrap() error        { return fabric.ErrTimeout }
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// A canceledError is both fabric.ErrCanceled and the context's cause.
type canceledError struct{ cause error }

func (e canceledError) Error() string        { return e.cause.Error() }
func (e canceledError) Unwrap() error        { return fabric.ErrCanceled }
func (e canceledError) Is(target error) bool { return errors.Is(e.cause, target) }
