// SPDX-License-Identifier: MIT

package io

import "mori/io/internal/errs"

// The causes that callers branch on.
var (
	ErrClosed      = errs.ErrClosed
	ErrInvalid     = errs.ErrInvalid
	ErrBadState    = errs.ErrBadState
	ErrNotFound    = errs.ErrNotFound
	ErrUnsupported = errs.ErrUnsupported // not possible on this machine; the text says why
	ErrUnreachable = errs.ErrUnreachable
	ErrCanceled    = errs.ErrCanceled
	ErrGPU         = errs.ErrGPU
)
