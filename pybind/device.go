// SPDX-License-Identifier: MIT

package pybind

import (
	"errors"
	"fmt"

	"mori/core/device"
	"mori/pybind/handle"
)

// errNoGPU is the advice to a user without a GPU.
const errNoGPU = "install NVIDIA's or AMD's driver, pass the GPUs into the container, or check CUDA_VISIBLE_DEVICES and" +
	" HIP_VISIBLE_DEVICES; python -m mori doctor shows what this host has"

// gpuAt returns the device with a number: its index among all devices.
func gpuAt(number int) (*device.Device, error) {
	all, err := device.Devices()
	if err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, coded("E_UNSUPPORTED", fmt.Errorf("%w; %s", err, errNoGPU))
		}
		return nil, err
	}
	if number < 0 || number >= len(all) {
		return nil, coded("E_ARG", fmt.Errorf("GPU %d does not exist: this process sees %d, numbered from 0", number, len(all)))
	}
	return all[number], nil
}

// numberOf returns the number with which gpuAt finds d, -1 if it does not.
func numberOf(d *device.Device) int {
	all, _ := device.Devices()
	for i := range all {
		if all[i] == d {
			return i
		}
	}
	return -1
}

// DeviceSetKernels sets the folder of the compiled kernels.
func DeviceSetKernels(folder string) (n int, err error) {
	defer guard(&err)
	device.SetKernelDir(folder)
	return 0, nil
}

// DeviceList returns the GPUs that this process sees as JSON, and the reason if there are none.
func DeviceList() (text string, err error) {
	defer guard(&err)
	infos, why := []device.Info{}, ""
	all, err := device.Devices()
	if err != nil {
		why = err.Error()
	}
	for _, d := range all {
		infos = append(infos, d.Info)
	}
	return toJSON(struct {
		Devices []device.Info `json:"devices"`
		Why     string        `json:"why"`
	}{infos, why})
}

// DeviceLive returns the device resources that are open in this process, as JSON.
func DeviceLive() (text string, err error) {
	defer guard(&err)
	return toJSON(device.Live())
}

// DeviceMemInfo returns the free and the total bytes of a GPU, as JSON.
func DeviceMemInfo(number int) (text string, err error) {
	defer guard(&err)
	d, err := gpuAt(number)
	if err != nil {
		return "", err
	}
	free, total, err := d.MemInfo()
	if err != nil {
		return "", err
	}
	return toJSON([2]uint64{free, total})
}

// DeviceReach returns how a GPU can access the memory of another, as JSON.
func DeviceReach(number int, peer int) (text string, err error) {
	defer guard(&err)
	d, err := gpuAt(number)
	if err != nil {
		return "", err
	}
	p, err := gpuAt(peer)
	if err != nil {
		return "", err
	}
	r, err := d.Reach(p)
	if err != nil {
		return "", err
	}
	return toJSON(r)
}

// DeviceLookup returns what the GPU drivers know about an address, as JSON.
func DeviceLookup(addr uint64) (text string, err error) {
	defer guard(&err)
	p, err := device.Lookup(addr)
	if err != nil {
		return "", err
	}
	ordinal, api := -1, ""
	if p.Device != nil {
		ordinal, api = p.Device.Ordinal, p.Device.API
	}
	return toJSON(struct {
		Kind       string `json:"kind"`
		Device     int    `json:"device"`
		API        string `json:"api"`
		Ordinal    int    `json:"ordinal"`
		Base       uint64 `json:"base"`
		Bytes      uint64 `json:"nbytes"`
		DeviceAddr uint64 `json:"device_ptr"`
		HostAddr   uint64 `json:"host_ptr"`
	}{p.Kind.String(), numberOf(p.Device), api, ordinal, p.Base, p.Bytes, p.DeviceAddr, p.HostAddr})
}

var (
	deviceMemories = handle.Table[*device.Memory]{What: "GPU memory"}
	hostMemories   = handle.Table[*device.HostMemory]{What: "pinned memory"}
)

// DeviceAlloc allocates memory on a GPU and returns its handle.
func DeviceAlloc(number int, nbytes uint64) (id uint64, err error) {
	defer guard(&err)
	d, err := gpuAt(number)
	if err != nil {
		return 0, err
	}
	m, err := d.Alloc(nbytes)
	if err != nil {
		return 0, err
	}
	return deviceMemories.Add(m), nil
}

// DeviceAddr returns the address of GPU memory.
func DeviceAddr(memory uint64) (addr uint64, err error) {
	defer guard(&err)
	m, err := deviceMemories.Get(memory)
	if err != nil {
		return 0, err
	}
	return m.Addr(), nil
}

// DeviceFree frees GPU memory. It ignores a handle that is already closed.
func DeviceFree(memory uint64) (n int, err error) {
	defer guard(&err)
	if m, ok := deviceMemories.Remove(memory); ok {
		return 1, m.Close()
	}
	return 0, nil
}

// HostAlloc allocates pinned host memory that all GPUs can access, and returns its handle.
func HostAlloc(number int, nbytes uint64) (id uint64, err error) {
	defer guard(&err)
	d, err := gpuAt(number)
	if err != nil {
		return 0, err
	}
	m, err := d.AllocHost(nbytes)
	if err != nil {
		return 0, err
	}
	return hostMemories.Add(m), nil
}

// HostAddr returns the address of pinned memory on the host.
func HostAddr(memory uint64) (addr uint64, err error) {
	defer guard(&err)
	m, err := hostMemories.Get(memory)
	if err != nil {
		return 0, err
	}
	return m.Addr(), nil
}

// HostDeviceAddr returns the address of pinned memory on GPUs.
func HostDeviceAddr(memory uint64) (addr uint64, err error) {
	defer guard(&err)
	m, err := hostMemories.Get(memory)
	if err != nil {
		return 0, err
	}
	return m.DeviceAddr(), nil
}

// HostFree frees pinned memory. It ignores a handle that is already closed.
func HostFree(memory uint64) (n int, err error) {
	defer guard(&err)
	if m, ok := hostMemories.Remove(memory); ok {
		return 1, m.Close()
	}
	return 0, nil
}

// DeviceEnablePeer enables direct copies between a GPU and all memory of another. It is permanent
// and may be repeated.
func DeviceEnablePeer(number int, peer int) (n int, err error) {
	defer guard(&err)
	d, err := gpuAt(number)
	if err != nil {
		return 0, err
	}
	p, err := gpuAt(peer)
	if err != nil || p == d {
		return 0, err
	}
	return 0, d.EnablePeer(p)
}
