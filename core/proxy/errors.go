// SPDX-License-Identifier: MIT

package proxy

import "errors"

// The causes that callers branch on.
var (
	ErrConfig = errors.New("proxy: invalid configuration")      // Config has a value that does not fit
	ErrBusy   = errors.New("proxy: commands are still pending") // Close gave up waiting for them, and their memory is kept
	ErrClosed = errors.New("proxy: closed")
)
