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

// Bound returns a context that ends at ctx's deadline, after DefaultWait if ctx has no deadline, or
// when ended is closed. In the last case, cause returns the reason.
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

// Error wraps the cause of a failed handshake as a fabric error that names the peer. ctx is the
// handshake's context, from Bound.
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

// isTimeout reports whether a socket's deadline has passed. A socket may report this before ctx is
// done. A net.Dialer returns a different error than reads and writes.
func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// An endedError is the error if the endpoint ended during its handshake.
type endedError struct{ cause error }

func (e endedError) Error() string { return e.cause.Error() }

// A causeError is a system error together with its Errno.
type causeError struct {
	err   error
	errno fabric.Errno
}

func (e causeError) Error() string { return e.err.Error() }
func (e causeError) Unwrap() error { return e.errno }

// Is also reports ErrBusy, because another attempt may succeed.
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
