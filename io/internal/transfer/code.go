// SPDX-License-Identifier: MIT

package transfer

import (
	"errors"
	"fmt"

	"mori/core/fabric"
	"mori/io/internal/errs"
)

// Code is the state of a transfer. Codes above 10 are errors.
type Code uint32

// The codes. The numbers are part of the public contract.
const (
	Success        Code = 0
	Init           Code = 1
	InProgress     Code = 2
	ErrInvalidArgs Code = 11
	ErrNotFound    Code = 12
	ErrRDMAOp      Code = 13
	ErrBadState    Code = 14
	ErrGPUOp       Code = 15
	ErrBadAddress  Code = 16 // mori's addition to the codes of the contract
)

var codeText = map[Code]string{
	Success: "SUCCESS", Init: "INIT", InProgress: "IN_PROGRESS", ErrInvalidArgs: "ERR_INVALID_ARGS",
	ErrNotFound: "ERR_NOT_FOUND", ErrRDMAOp: "ERR_RDMA_OP", ErrBadState: "ERR_BAD_STATE", ErrGPUOp: "ERR_GPU_OP",
	ErrBadAddress: "ERR_BAD_ADDRESS",
}

// String returns the public name.
func (c Code) String() string {
	if s, ok := codeText[c]; ok {
		return s
	}
	return fmt.Sprintf("StatusCode(%d)", uint32(c))
}

// Failed reports whether c is an error.
func (c Code) Failed() bool { return c > 10 }

// CodeName returns the name of a code in statistics and traces.
func CodeName(code uint32) string {
	if s, ok := codeText[Code(code)]; ok {
		return s
	}
	return "OTHER"
}

// Outcome returns the code and the text with which the end of a transfer is reported. A failure
// between GPUs has its own text and code, and a success between GPUs has no text.
func Outcome(err error, text string, gpus bool) (Code, string) {
	code := Success
	if err != nil {
		code = codeOf(err)
	}
	switch {
	case !gpus:
		return code, text
	case err == nil:
		return code, ""
	case code == ErrRDMAOp:
		code = ErrGPUOp
	}
	return code, "XGMI: " + text
}

// codeOf maps the cause of a failed transfer to its public code.
func codeOf(err error) Code {
	is := func(causes ...error) bool {
		for _, c := range causes {
			if errors.Is(err, c) {
				return true
			}
		}
		return false
	}
	switch {
	case is(errs.ErrInvalid, fabric.ErrRange, fabric.ErrAccess):
		return ErrInvalidArgs
	case is(errs.ErrNotFound, fabric.ErrNoKey, fabric.ErrNoMR):
		return ErrNotFound
	case is(errs.ErrBadState, errs.ErrClosed, errs.ErrCanceled):
		return ErrBadState
	case is(errs.ErrGPU):
		return ErrGPUOp
	case is(fabric.ErrFault):
		return ErrBadAddress
	}
	return ErrRDMAOp
}

// isPathError reports whether another path may succeed where this one failed. It is false if the
// target or this side has refused the op itself. It is also false after ErrFault: by the time of a
// retry, other memory may be mapped at that address.
func isPathError(err error) bool {
	switch fabric.ErrnoOf(err) {
	case fabric.ErrFault, fabric.ErrAccess, fabric.ErrRange, fabric.ErrNoKey, fabric.ErrNoMR,
		fabric.ErrInvalid, fabric.ErrMsgSize, fabric.ErrBadFlags, fabric.ErrNotSupported:
		return false
	}
	return true
}
