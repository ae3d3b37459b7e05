// SPDX-License-Identifier: MIT

package proxy

import "errors"

// The errors that callers check for.
var (
	ErrConfig = errors.New("proxy: invalid configuration")      // Config has an invalid value
	ErrBusy   = errors.New("proxy: commands are still pending") // Close stopped waiting for them; their memory is kept
	ErrClosed = errors.New("proxy: closed")
)
