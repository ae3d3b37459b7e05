// SPDX-License-Identifier: MIT

// Package errs defines the causes that the errors of package io wrap. Package io exports them.
package errs

import "errors"

// The causes that callers branch on.
var (
	ErrClosed      = errors.New("engine is closed")
	ErrInvalid     = errors.New("invalid argument")
	ErrBadState    = errors.New("invalid in this state")
	ErrNotFound    = errors.New("not found")
	ErrUnsupported = errors.ErrUnsupported // not possible on this machine; the text says why
	ErrUnreachable = errors.New("peer not reachable")
	ErrCanceled    = errors.New("canceled")
	ErrGPU         = errors.New("a GPU failed")
)
