// SPDX-License-Identifier: MIT

package gpu

// #cgo CFLAGS: -std=gnu11 -O2 -Wall
// #cgo LDFLAGS: -ldl -lpthread
// #include <stdlib.h>
// #include "gpu.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// A Vendor is a GPU vendor.
type Vendor int

// The vendors, in the order in which they are tried.
const (
	CUDA Vendor = C.GPU_CUDA
	HIP  Vendor = C.GPU_HIP
)

func (v Vendor) String() string {
	switch v {
	case CUDA:
		return "CUDA"
	case HIP:
		return "HIP"
	}
	return fmt.Sprintf("vendor %d", int(v))
}

// A Driver is a vendor's loaded library. It is never closed.
type Driver struct {
	api     *C.struct_gpu_api
	vendor  Vendor
	path    string
	version int
	runtime int
}

// Vendor returns the driver's vendor.
func (d *Driver) Vendor() Vendor { return d.vendor }

// Path returns the file that was loaded.
func (d *Driver) Path() string { return d.path }

// Version returns the driver's version: 13000 is CUDA 13.0, 70125424 is HIP 7.1.25424.
func (d *Driver) Version() int { return d.version }

// Runtime returns the version of HIP's runtime library. For CUDA it returns the driver's version,
// since PyTorch brings its own runtime.
func (d *Driver) Runtime() int { return d.runtime }

// Device returns a device of the driver. It does not check that the device exists.
func (d *Driver) Device(ordinal int) Device { return Device{d, ordinal} }

// A Device is a device of a driver.
type Device struct {
	Driver  *Driver
	Ordinal int
}

// conclusive caches the final results of Open.
var conclusive struct {
	sync.Mutex
	drivers map[Vendor]*Driver
	absent  map[Vendor]error
}

// Open loads the vendor's driver from the system's library path, once.
func Open(v Vendor) (*Driver, error) {
	conclusive.Lock()
	defer conclusive.Unlock()
	if d := conclusive.drivers[v]; d != nil {
		return d, nil
	}
	if err := conclusive.absent[v]; err != nil {
		return nil, err
	}
	d, err := OpenFile(v, "")
	switch {
	case err == nil:
		if conclusive.drivers == nil {
			conclusive.drivers = make(map[Vendor]*Driver)
		}
		conclusive.drivers[v] = d
	case errors.Is(err, errors.ErrUnsupported):
		if conclusive.absent == nil {
			conclusive.absent = make(map[Vendor]error)
		}
		conclusive.absent[v] = err
	}
	return d, err
}

// OpenFile loads the vendor's driver from a file, anew at each call. It is for tests; other code
// uses Open.
func OpenFile(v Vendor, path string) (*Driver, error) {
	if v != CUDA && v != HIP {
		return nil, fmt.Errorf("open the driver of %v: %w", v, errors.ErrUnsupported)
	}
	var name *C.char
	if path != "" {
		name = C.CString(path)
		defer C.free(unsafe.Pointer(name))
	}
	var why [512]C.char
	var api *C.struct_gpu_api
	switch C.gpu_open(C.int(v), name, &api, &why[0], C.size_t(len(why))) {
	case C.GPU_OPEN:
	case C.GPU_ABSENT:
		return nil, fmt.Errorf("no %v device: %s: %w", v, C.GoString(&why[0]), errors.ErrUnsupported)
	default:
		return nil, fmt.Errorf("open the %v driver: %s", v, C.GoString(&why[0]))
	}
	d := &Driver{api: api, vendor: v, path: C.GoString(C.gpu_path(api))}
	var version C.int
	d.runtime = int(C.gpu_versions(api, &version))
	d.version = int(version)
	return d, nil
}

// A Symbol is a function of a driver's library.
type Symbol struct {
	Name   string
	Needed bool // if missing, the driver is refused; without other symbols, only the calls that need them fail
}

// Symbols returns the symbols of the vendor's table.
func Symbols(v Vendor) []Symbol {
	var all []Symbol
	for i := C.size_t(0); ; i++ {
		var needed C.int
		name := C.gpu_symbol(C.int(v), i, &needed)
		if name == nil {
			return all
		}
		all = append(all, Symbol{C.GoString(name), needed != 0})
	}
}

// Current returns what is current on the calling thread: on CUDA the context's address, 0 if there
// is none; on HIP the device.
func (d *Driver) Current() (uint64, error) {
	var current C.uint64_t
	err := d.check(-1, C.gpu_current(d.api, &current))
	return uint64(current), err
}

// CurrentDevice returns the device that is current on the calling thread. It is -1 if there is
// none: on CUDA, before a context exists.
func (d *Driver) CurrentDevice() (int, error) {
	var dev C.int
	err := d.check(-1, C.gpu_current_device(d.api, &dev))
	return int(dev), err
}

// Count returns the number of devices.
func (d *Driver) Count() (int, error) {
	var n C.int
	err := d.check(-1, C.gpu_count(d.api, &n))
	return int(n), err
}

func (d *Driver) check(device int, rc C.struct_gpu_rc) error {
	if rc.code == 0 {
		return nil
	}
	var name, text *C.char
	C.gpu_error(d.api, rc.code, &name, &text)
	return &Error{Vendor: d.vendor, Device: device, Call: C.GoString(rc.call), Code: int(rc.code), Name: C.GoString(name), Text: C.GoString(text)}
}

func (d Device) check(rc C.struct_gpu_rc) error { return d.Driver.check(d.Ordinal, rc) }
func (d Device) id() C.int                      { return C.int(d.Ordinal) }

// made converts the result of a call that creates an object.
func (d Device) made(handle C.uint64_t, rc C.struct_gpu_rc) (uint64, error) {
	if err := d.check(rc); err != nil {
		return 0, err
	}
	return uint64(handle), nil
}
