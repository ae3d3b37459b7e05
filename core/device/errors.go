// SPDX-License-Identifier: MIT

package device

import (
	"errors"

	"mori/native/gpu"
)

// The errors that callers check for.
var (
	ErrNoMemory  = gpu.ErrNoMemory                           // the device has too little free memory
	ErrImage     = gpu.ErrImage                              // the code is for other devices, or for a newer driver
	ErrNoSymbol  = gpu.ErrNoSymbol                           // the module has no such kernel or variable
	ErrNoPeer    = gpu.ErrNoPeer                             // the devices cannot access each other's memory
	ErrInvalid   = gpu.ErrInvalid                            // an argument is invalid, or a handle was closed
	ErrLost      = gpu.ErrLost                               // a kernel failed: the device no longer serves this process
	ErrDuplicate = gpu.ErrDuplicate                          // registered or mapped already
	ErrClosed    = errors.New("closed")                      // the object was closed
	ErrTimeout   = errors.New("the device has not finished") // the wait ended first
	ErrBusy      = errors.New("too many pending operations") // a Copier has Depth pending copies
)

// ignoreAbsent returns nil for the error that no device exists.
func ignoreAbsent(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
