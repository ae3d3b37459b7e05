// SPDX-License-Identifier: MIT

package local

import (
	"fmt"

	"mori/core/fabric"
)

// An opError is why an op ended, without the cause in words: fabric.ErrEntry adds those.
type opError struct {
	text  string
	cause fabric.Errno
}

func (e *opError) Error() string { return e.text }
func (e *opError) Unwrap() error { return e.cause }

// OpFault is an op's end by cause.
func OpFault(cause fabric.Errno, format string, args ...any) error {
	return &opError{fmt.Sprintf(format, args...), cause}
}
