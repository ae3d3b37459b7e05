// SPDX-License-Identifier: MIT

package device

import (
	"errors"

	"mori/native/gpu"
)

// The causes that callers branch on.
var (
	ErrNoMemory  = gpu.ErrNoMemory                           // the device has not so much memory free
	ErrImage     = gpu.ErrImage                              // the code is for other devices, or for a newer driver
	ErrNoSymbol  = gpu.ErrNoSymbol                           // the module has no such kernel or variable
	ErrNoPeer    = gpu.ErrNoPeer                             // the devices cannot access each other's memory
	ErrInvalid   = gpu.ErrInvalid                            // an argument is wrong, or a handle is of what is gone
	ErrLost      = gpu.ErrLost                               // a kernel went wrong: the device serves this process no more
	ErrDuplicate = gpu.ErrDuplicate                          // registered or mapped before
	ErrClosed    = errors.New("closed")                      // the object was closed
	ErrTimeout   = errors.New("the device has not finished") // a wait ended first
	ErrBusy      = errors.New("too many pending operations") // a Copier has as many copies as it may
)

// ignoreAbsent makes no error of there being no device.
func ignoreAbsent(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
