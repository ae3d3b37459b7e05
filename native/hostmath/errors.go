// SPDX-License-Identifier: MIT

package hostmath

import "errors"

var (
	// ErrType is wrapped by what says that a kernel does not know an element type.
	ErrType = errors.New("element type is not supported")
	// ErrShape is wrapped by what says that lengths do not fit one another.
	ErrShape = errors.New("shape does not fit")
)
