// SPDX-License-Identifier: MIT

package pybind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	"mori/core/bootstrap"
	"mori/core/device"
	"mori/core/fabric"
	"mori/core/interchange"
	"mori/core/limits"
	"mori/ep"
	"mori/io"
	"mori/pybind/handle"
	"mori/shmem"
)

// A codedError carries the stable code that _core.py maps to an exception class.
type codedError struct {
	code string
	err  error
}

func (e *codedError) Error() string { return e.code + "|" + e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

func coded(code string, err error) error { return &codedError{code, err} }

// codes maps causes to stable codes. The first match counts.
var codes = []struct {
	cause error
	code  string
}{
	{handle.ErrStale, "E_STATE"},
	{io.ErrInvalid, "E_ARG"},
	{fabric.ErrInvalid, "E_ARG"},
	{fabric.ErrTooSmall, "E_ARG"},
	{limits.ErrShort, "E_AGAIN"},
	{syscall.EMFILE, "E_AGAIN"},
	{syscall.ENFILE, "E_AGAIN"},
	{shmem.ErrInvalid, "E_ARG"},
	{shmem.ErrNotSym, "E_ARG"},
	{shmem.ErrNoMemory, "E_NOMEM"},
	{shmem.ErrMismatch, "E_MISMATCH"},
	{shmem.ErrTimeout, "E_TIMEOUT"},
	{shmem.ErrUnreachable, "E_CONN"},
	{shmem.ErrClosed, "E_STATE"},
	{device.ErrNoMemory, "E_NOMEM"},
	{device.ErrInvalid, "E_ARG"},
	{device.ErrDuplicate, "E_ARG"},
	{device.ErrNoPeer, "E_UNSUPPORTED"},
	{device.ErrImage, "E_UNSUPPORTED"},
	{device.ErrLost, "E_STATE"},
	{device.ErrClosed, "E_STATE"},
	{interchange.ErrOrder, "E_STATE"},
	{bootstrap.ErrBadID, "E_ARG"},
	{bootstrap.ErrMismatch, "E_MISMATCH"},
	{bootstrap.ErrClosed, "E_STATE"},
	{ep.ErrConfig, "E_ARG"},
	{ep.ErrShape, "E_ARG"},
	{ep.ErrMap, "E_ARG"},
	{ep.ErrRecvCap, "E_CAP"},
	{ep.ErrMismatch, "E_MISMATCH"},
	{ep.ErrState, "E_STATE"},
	{io.ErrNotFound, "E_NOTFOUND"},
	{context.DeadlineExceeded, "E_TIMEOUT"},
	{os.ErrDeadlineExceeded, "E_TIMEOUT"},
	{fabric.ErrTimeout, "E_TIMEOUT"},
	{errors.ErrUnsupported, "E_UNSUPPORTED"},
	{io.ErrUnreachable, "E_CONN"},
	{fabric.ErrConnRefused, "E_CONN"},
	{fabric.ErrConnReset, "E_CONN"},
	{fabric.ErrAgain, "E_AGAIN"},
	{io.ErrClosed, "E_STATE"},
	{io.ErrBadState, "E_STATE"},
}

// guard gives errors their code and turns a panic, which would end the process, into an error.
// Every exported function must call it as `defer guard(&err)`.
func guard(err *error) {
	if r := recover(); r != nil {
		*err = coded("E_INTERNAL", fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
		return
	}
	var c *codedError
	if *err == nil || errors.As(*err, &c) {
		return
	}
	var dead *bootstrap.RankError
	if errors.As(*err, &dead) {
		*err = coded(fmt.Sprintf("E_PE:%d", dead.Rank), *err)
		return
	}
	for _, k := range codes {
		if errors.Is(*err, k.cause) {
			*err = coded(k.code, *err)
			return
		}
	}
	*err = coded("E_INTERNAL", *err)
}
