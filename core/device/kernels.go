// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"mori/core/config"
)

var kernelDir atomic.Pointer[string]

// SetKernelDir sets the folder of compiled kernels. The environment variable MORI_KERNEL_DIR
// overrides it.
func SetKernelDir(dir string) { kernelDir.Store(&dir) }

// KernelDir returns the folder of compiled kernels, "" if it is unknown.
func KernelDir() string {
	if dir := config.Get(config.KernelDir); dir != "" {
		return dir
	}
	if dir := kernelDir.Load(); dir != nil {
		return *dir
	}
	return ""
}

// Requirements of the PTX files: an NVIDIA driver reads PTX of its own version and of older ones.
const (
	newPTXDriver, oldPTXDriver = 12000, 11040
	newPTX, oldPTX             = "sm_90.ptx", "sm_80.ptx"
)

// LoadKernels loads the kernels of the matching file <name>.<architecture>.<format>. On CUDA that
// is the PTX of the newest architecture that device and driver support; on HIP, the code object of
// exactly this architecture. If there is none, the error wraps ErrImage and says what would help.
func (d *Device) LoadKernels(name string) (*Module, error) {
	file, err := d.KernelFile(name)
	if err != nil {
		return nil, fmt.Errorf("load kernels %q on %s: %w", name, d, err)
	}
	image, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: the installation has no kernels for it: %w", err, ErrImage)
	}
	if err != nil {
		return nil, fmt.Errorf("load kernels %q on %s: %w", name, d, err)
	}
	m, err := d.Load(image)
	if err != nil {
		return nil, fmt.Errorf("load kernels %q: %w", name, err)
	}
	return m, nil
}

// KernelFile returns the name of the file that LoadKernels loads, which may not exist. If the
// newest architecture's PTX equals the oldest's, only the oldest is shipped, and KernelFile returns
// that.
func (d *Device) KernelFile(name string) (string, error) {
	suffix, err := d.Info.kernelFormat()
	if err != nil {
		return "", err
	}
	dir := KernelDir()
	if dir == "" {
		return "", fmt.Errorf("the folder of the compiled kernels is unknown: set %s to the folder _kernels of the Python package: %w", config.KernelDir, ErrImage)
	}
	file := filepath.Join(dir, name+"."+suffix)
	if suffix == newPTX {
		older := filepath.Join(dir, name+"."+oldPTX)
		if !exists(file) && exists(older) {
			return older, nil
		}
	}
	return file, nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// kernelFormat returns the suffix of the files for the device.
func (d *Info) kernelFormat() (string, error) {
	if d.Vendor == HIP {
		arch, _, _ := strings.Cut(d.Arch, ":") // "gfx942:sramecc+:xnack-"
		switch arch {
		case "gfx90a", "gfx942":
			return arch + ".hsaco", nil
		}
		return "", fmt.Errorf("kernels are compiled for gfx90a and gfx942, but the device is %q: %w", d.Arch, ErrImage)
	}
	switch {
	case d.Capability[0] < 8:
		return "", fmt.Errorf("kernels need compute capability 8.0 or later, but the device has %d.%d: %w", d.Capability[0], d.Capability[1], ErrImage)
	case d.Driver < oldPTXDriver:
		return "", fmt.Errorf("kernels need an NVIDIA driver for CUDA 11.4 or later (470 and up), but this one is for %d.%d: update it: %w", d.Driver/1000, d.Driver%1000/10, ErrImage)
	case d.Capability[0] >= 9 && d.Driver >= newPTXDriver:
		return newPTX, nil
	}
	return oldPTX, nil
}
