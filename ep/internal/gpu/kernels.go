// SPDX-License-Identifier: MIT

package gpu

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"mori/core/device"
)

// kernels are the loaded kernels of one device. All ops there share them.
type kernels struct {
	dev                         *device.Device
	users                       int
	modules                     []*device.Module
	dispatch, combine, count    *device.Function
	dispatchHosts, combineHosts *device.Function // between hosts; nil until an op needs them
	combineForward              *device.Function // if hosts sum
	place, pack, unpack         *device.Function // the standard-MoE form
	bulk                        bool             // they copy through shared memory if the launch has some
}

// The most shared memory that the kernels declare themselves, in bytes.
const (
	dispatchShared      = 22 << 10
	dispatchHostsShared = 23 << 10
	combineShared       = 31 << 10
)

var loaded = struct {
	sync.Mutex
	on map[*device.Device]*kernels
}{on: map[*device.Device]*kernels{}}

// useKernels returns the kernels of d, and loads them unless they are. drop releases them.
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
	type want struct {
		to     **device.Function
		name   string
		shared int
	}
	for _, one := range []struct {
		module string
		wants  []want
	}{
		{"ep_dispatch", []want{{&k.dispatch, "mori_ep_dispatch", dispatchShared}}},
		{"ep_combine", []want{{&k.combine, "mori_ep_combine", combineShared}}},
		{"ep_count_local", []want{{&k.count, "mori_ep_count_local", 0}}},
		{"ep_standard", []want{
			{&k.place, "mori_ep_place", 0}, {&k.pack, "mori_ep_pack", 0}, {&k.unpack, "mori_ep_unpack", 0},
		}},
	} {
		m, err := k.dev.LoadKernels(one.module)
		if err != nil {
			return err
		}
		k.modules = append(k.modules, m)
		for _, w := range one.wants {
			if *w.to, err = k.function(m, w.name, w.shared); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadHosts also loads the kernels for ranks on several hosts, and the kernel for hosts that sum.
func (k *kernels) loadHosts(sums bool) error {
	loaded.Lock()
	defer loaded.Unlock()
	for _, one := range []struct {
		to     **device.Function
		name   string
		shared int
		wanted bool
	}{
		{&k.dispatchHosts, "dispatch_hosts", dispatchHostsShared, true},
		{&k.combineHosts, "combine_hosts", combineShared, true},
		{&k.combineForward, "combine_forward", combineShared, sums},
	} {
		if *one.to != nil || !one.wanted {
			continue
		}
		m, err := k.dev.LoadKernels("ep_" + one.name)
		if err == nil {
			k.modules = append(k.modules, m)
			*one.to, err = k.function(m, "mori_ep_"+one.name, one.shared)
		}
		if err != nil {
			return fmt.Errorf("load the kernels for several hosts: %w", err)
		}
	}
	return nil
}

// function returns a kernel, which declares a number of bytes of shared memory itself; 0: it copies
// nothing through shared memory.
func (k *kernels) function(m *device.Module, name string, shared int) (*device.Function, error) {
	f, err := m.Function(name)
	if err != nil {
		return nil, err
	}
	// Drivers load code lazily, and wait for running kernels then. These may be of another rank of
	// this process, which waits for the kernel that is loaded. Asking for an attribute loads it
	// now.
	if _, err := f.Registers(); err != nil {
		return nil, err
	}
	if k.bulk && shared > 0 {
		err = f.SetShared(k.room(shared))
	}
	return f, err
}

// room returns how many bytes of shared memory a launch may add to those that the kernel declares.
func (k *kernels) room(declared int) int { return max(0, k.dev.MaxShared-declared) }

func (k *kernels) unload() error {
	var errs []error
	for _, m := range k.modules {
		errs = append(errs, m.Close())
	}
	k.modules = nil
	return errors.Join(errs...)
}
