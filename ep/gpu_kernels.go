// SPDX-License-Identifier: MIT

package ep

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"mori/core/device"
)

// kernels are those of dispatch and combine on one device, which all ops there share.
type kernels struct {
	dev                      *device.Device
	users                    int
	modules                  []*device.Module
	dispatch, combine, count *device.Function
	bulk                     bool // they copy through shared memory, if the launch gives them some
}

// What the kernels have of shared memory themselves, at most.
const (
	dispatchShared = 26 << 10
	combineShared  = 29 << 10
)

var loaded = struct {
	sync.Mutex
	on map[*device.Device]*kernels
}{on: map[*device.Device]*kernels{}}

// useKernels loads the kernels for d, or finds them loaded. drop gives them back.
func useKernels(d *device.Device) (*kernels, error) {
	loaded.Lock()
	defer loaded.Unlock()
	k := loaded.on[d]
	if k == nil {
		k = &kernels{dev: d}
		if err := k.load(); err != nil {
			return nil, errors.Join(fmt.Errorf("load the kernels of dispatch and combine: %w", err), k.unload())
		}
		loaded.on[d] = k
	}
	k.users++
	return k, nil
}

func (k *kernels) drop() error {
	loaded.Lock()
	defer loaded.Unlock()
	if k.users--; k.users > 0 {
		return nil
	}
	delete(loaded.on, k.dev)
	return k.unload()
}

func (k *kernels) load() error {
	file, err := k.dev.KernelFile("ep_dispatch")
	if err != nil {
		return err
	}
	k.bulk = strings.HasSuffix(file, ".sm_90.ptx")
	for _, one := range []struct {
		name   string
		to     **device.Function
		shared int
	}{{"dispatch", &k.dispatch, dispatchShared}, {"combine", &k.combine, combineShared}, {"count_local", &k.count, 0}} {
		m, err := k.dev.LoadKernels("ep_" + one.name)
		if err != nil {
			return err
		}
		k.modules = append(k.modules, m)
		f, err := m.Function("mori_ep_" + one.name)
		if err != nil {
			return err
		}
		// Drivers load code lazily, and wait for running kernels then: for those of another rank of this process, which wait for the one
		// that is loaded. Who asks for an attribute has it loaded now.
		if _, err := f.Registers(); err != nil {
			return err
		}
		if k.bulk && one.shared > 0 {
			if err := f.SetShared(k.room(one.shared)); err != nil {
				return err
			}
		}
		*one.to = f
	}
	return nil
}

// room is how many bytes of shared memory a launch may give, where the kernel has own.
func (k *kernels) room(own int) int { return max(0, k.dev.MaxShared-own) }

func (k *kernels) unload() error {
	var errs []error
	for _, m := range k.modules {
		errs = append(errs, m.Close())
	}
	k.modules = nil
	return errors.Join(errs...)
}
