// SPDX-License-Identifier: MIT

package local

import (
	"fmt"

	"mori/core/fabric"
)

// An opError is the reason why an op ended, without the text of the cause, which fabric.ErrEntry
// adds.
type opError struct {
	text  string
	cause fabric.Errno
}

func (e *opError) Error() string { return e.text }
func (e *opError) Unwrap() error { return e.cause }

// OpFault returns the error of an op that ended because of cause.
func OpFault(cause fabric.Errno, format string, args ...any) error {
	return &opError{fmt.Sprintf(format, args...), cause}
}
