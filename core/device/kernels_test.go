// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mori/core/config"
)

// Each device gets the file that suits it, and a device that none suits an answer that says what
// would help.
func TestKernelFilesSuitTheDevice(t *testing.T) {
	for _, c := range []struct {
		what       string
		in         Info
		file, says string
	}{
		{"H200", Info{Vendor: CUDA, Capability: [2]int{9, 0}, Driver: 13000}, "sm_90.ptx", ""},
		{"B200", Info{Vendor: CUDA, Capability: [2]int{10, 0}, Driver: 12080}, "sm_90.ptx", ""},
		{"H100 with a driver that reads no PTX 8.0", Info{Vendor: CUDA, Capability: [2]int{9, 0}, Driver: 11080}, "sm_80.ptx", ""},
		{"A100", Info{Vendor: CUDA, Capability: [2]int{8, 0}, Driver: 13000}, "sm_80.ptx", ""},
		{"A100 with an old driver", Info{Vendor: CUDA, Capability: [2]int{8, 0}, Driver: 11020}, "", "update"},
		{"V100", Info{Vendor: CUDA, Capability: [2]int{7, 0}, Driver: 12080}, "", "8.0 or later"},
		{"MI300X", Info{Vendor: HIP, Arch: "gfx942:sramecc+:xnack-"}, "gfx942.hsaco", ""},
		{"MI250X", Info{Vendor: HIP, Arch: "gfx90a"}, "gfx90a.hsaco", ""},
		{"a Radeon", Info{Vendor: HIP, Arch: "gfx1100"}, "", "gfx1100"},
	} {
		t.Run(c.what, func(t *testing.T) {
			file, err := (&Device{Info: c.in}).kernelFormat()
			if file != c.file {
				t.Errorf("file %q, want %q", file, c.file)
			}
			if (c.says == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), c.says) || !errors.Is(err, ErrImage)) {
				t.Errorf("error %v, want %q", err, c.says)
			}
		})
	}
}

// Kernels whose PTX is the same for both architectures are shipped once, as the older one's.
func TestKernelFileFallsBackToTheOlderPTX(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(config.KernelDir, dir)
	for _, file := range []string{"both." + newPTX, "both." + oldPTX, "once." + oldPTX} {
		ok(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
	}
	d := &Device{Info: Info{Vendor: CUDA, Capability: [2]int{9, 0}, Driver: 13000}}
	for name, want := range map[string]string{"both": newPTX, "once": oldPTX, "none": newPTX} {
		if got, err := d.KernelFile(name); err != nil || got != filepath.Join(dir, name+"."+want) {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
}

func TestLoadKernelsFindsTheFolder(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		d := b.devices[0]
		format, err := d.kernelFormat()
		if err != nil {
			t.Skip(err)
		}
		dir := t.TempDir()
		ok(t, os.WriteFile(filepath.Join(dir, "here."+format), b.image, 0o600))
		old := kernelDir.Load()
		t.Cleanup(func() { kernelDir.Store(old) })
		t.Setenv(config.KernelDir, "")
		kernelDir.Store(nil)
		if _, err := d.LoadKernels("here"); !errors.Is(err, ErrImage) || !strings.Contains(err.Error(), config.KernelDir) {
			t.Errorf("without a folder: %v", err)
		}
		SetKernelDir(dir)
		m := closing(t, must[*Module](t)(d.LoadKernels("here")), nil)
		_ = must[*Function](t)(m.Function("fill"))
		if _, err := d.LoadKernels("elsewhere"); !errors.Is(err, ErrImage) || !strings.Contains(err.Error(), "elsewhere."+format) {
			t.Errorf("kernels that are not there: %v", err)
		}
		t.Setenv(config.KernelDir, t.TempDir())
		if _, err := d.LoadKernels("here"); !errors.Is(err, ErrImage) {
			t.Errorf("the environment is not asked first: %v", err)
		}
	})
}
