// SPDX-License-Identifier: MIT

package gpu

import (
	"errors"
	"fmt"
)

// The errors that callers may need to distinguish.
var (
	ErrNotReady  = errors.New("the device has not finished")
	ErrNoMemory  = errors.New("out of device memory")
	ErrImage     = errors.New("the code does not match this device or driver")
	ErrNoSymbol  = errors.New("the module has no such symbol")
	ErrNoPeer    = errors.New("the devices cannot access each other's memory")
	ErrInvalid   = errors.New("the driver refused the argument")
	ErrLost      = errors.New("the device's context is broken: the process must end")
	ErrDuplicate = errors.New("already done")
)

// causes maps the error codes that have the same number at both vendors (cuda.h CUDA_ERROR_*,
// hip_runtime_api.h hipError*).
var causes = map[int]error{
	1:   ErrInvalid,            // INVALID_VALUE
	2:   ErrNoMemory,           // OUT_OF_MEMORY
	100: errors.ErrUnsupported, // NO_DEVICE
	101: ErrInvalid,            // INVALID_DEVICE
	200: ErrImage,              // INVALID_IMAGE
	201: ErrInvalid,            // INVALID_CONTEXT
	208: ErrDuplicate,          // ALREADY_MAPPED
	209: ErrImage,              // NO_BINARY_FOR_GPU
	217: ErrNoPeer,             // PEER_ACCESS_UNSUPPORTED
	218: ErrImage,              // INVALID_PTX
	221: ErrImage,              // JIT_COMPILER_NOT_FOUND
	222: ErrImage,              // UNSUPPORTED_PTX_VERSION
	223: ErrImage,              // JIT_COMPILATION_DISABLED
	400: ErrInvalid,            // INVALID_HANDLE
	500: ErrNoSymbol,           // NOT_FOUND
	600: ErrNotReady,           // NOT_READY
	700: ErrLost,               // ILLEGAL_ADDRESS
	702: ErrLost,               // LAUNCH_TIMEOUT
	709: ErrLost,               // CONTEXT_IS_DESTROYED
	710: ErrLost,               // ASSERT
	712: ErrDuplicate,          // HOST_MEMORY_ALREADY_REGISTERED
	715: ErrLost,               // ILLEGAL_INSTRUCTION
	716: ErrLost,               // MISALIGNED_ADDRESS
	717: ErrLost,               // INVALID_ADDRESS_SPACE
	718: ErrLost,               // INVALID_PC
	719: ErrLost,               // LAUNCH_FAILED
	801: errors.ErrUnsupported, // NOT_SUPPORTED
}

// An Error is a driver's error.
type Error struct {
	Vendor Vendor
	Device int    // -1: the call was not about a device
	Call   string // the vendor's name: "cuMemAlloc_v2"
	Code   int
	Name   string // the vendor's: "CUDA_ERROR_OUT_OF_MEMORY"
	Text   string // the vendor's text, and the compiler's log for a module
}

func (e *Error) Error() string {
	where := e.Vendor.String()
	if e.Device >= 0 {
		where = fmt.Sprintf("%s device %d", where, e.Device)
	}
	return fmt.Sprintf("%s on %s: %s (%d): %s", e.Call, where, e.Name, e.Code, e.Text)
}

// Unwrap returns the cause, or nil if callers need not distinguish it.
func (e *Error) Unwrap() error { return causes[e.Code] }
