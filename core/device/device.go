// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"mori/native/gpu"
)

// A Vendor identifies a driver.
type Vendor = gpu.Vendor

// The vendors.
const (
	CUDA = gpu.CUDA
	HIP  = gpu.HIP
)

// Info describes a device as its driver does. It does not change.
type Info struct {
	Vendor       Vendor `json:"-"`
	API          string `json:"api"`     // "CUDA", "HIP"
	Ordinal      int    `json:"ordinal"` // among the devices of the vendor that this process sees
	Name         string `json:"name"`
	UUID         string `json:"uuid"`
	BusID        string `json:"bus_id"` // PCI, in lower case, as sysfs has it
	Arch         string `json:"arch"`   // "sm_90", "gfx942"
	Capability   [2]int `json:"capability"`
	Bytes        uint64 `json:"bytes"` // of memory
	Units        int    `json:"units"` // multiprocessors, compute units
	Warp         int    `json:"warp"`
	MaxThreads   int    `json:"max_threads"` // of a block
	Shared       int    `json:"shared"`      // shared memory per block, in bytes
	MaxShared    int    `json:"max_shared"`  // after Function.SetShared
	CopyEngines  int    `json:"copy_engines"`
	Driver       int    `json:"driver"` // version, in the vendor's numbering
	DMABuf       bool   `json:"dma_buf"`
	RDMA         bool   `json:"rdma"`
	VMM          bool   `json:"vmm"`
	VMMFD        bool   `json:"vmm_fd"`
	VMMFabric    bool   `json:"vmm_fabric"`
	HostAtomics  bool   `json:"host_atomics"` // host memory supports the link's native atomics
	SharesMemory bool   `json:"shares_memory"`
}

// A Device is a GPU. Each GPU has one object, which is never closed.
type Device struct {
	Info
	gpu gpu.Device
	sys *system
	ipc ipcCache
}

// String is "CUDA device 0 (NVIDIA H200)".
func (d *Device) String() string {
	return fmt.Sprintf("%v device %d (%s)", d.Vendor, d.Ordinal, d.Name)
}

// A system holds the opened drivers.
type system struct {
	open func(Vendor) (*gpu.Driver, error)

	mu      sync.Mutex
	devices map[Vendor][]*Device
	drivers map[Vendor]*gpu.Driver
}

func newSystem(open func(Vendor) (*gpu.Driver, error)) *system {
	return &system{open: open, devices: make(map[Vendor][]*Device), drivers: make(map[Vendor]*gpu.Driver)}
}

var here = newSystem(gpu.Open)

// Devices returns all GPUs that this process sees, grouped by vendor and ordered by ordinal. If
// there is none, the error has the reason for each vendor, and wraps errors.ErrUnsupported if the
// reason is permanent.
func Devices() ([]*Device, error) { return here.all() }

func (s *system) all() ([]*Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Device
	var whys []error
	unclear := false
	for _, v := range []Vendor{CUDA, HIP} {
		devices, err := s.of(v)
		all = append(all, devices...)
		if err != nil {
			whys = append(whys, err)
			unclear = unclear || !errors.Is(err, errors.ErrUnsupported)
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	return nil, &noDevice{whys, !unclear}
}

// of lists the devices of a vendor. The lock is held.
func (s *system) of(v Vendor) ([]*Device, error) {
	if devices := s.devices[v]; devices != nil {
		return devices, nil
	}
	driver, err := s.open(v)
	if err != nil {
		return nil, err
	}
	n, err := driver.Count()
	if err != nil {
		return nil, err
	}
	devices := make([]*Device, n)
	for i := range devices {
		if devices[i], err = s.describe(driver, i); err != nil {
			return nil, fmt.Errorf("describe %v device %d: %w", v, i, err)
		}
	}
	s.drivers[v], s.devices[v] = driver, devices
	return devices, nil
}

func (s *system) describe(driver *gpu.Driver, ordinal int) (*Device, error) {
	d := &Device{gpu: driver.Device(ordinal), sys: s}
	in, err := d.gpu.Describe()
	if err != nil {
		return nil, err
	}
	has := func(a gpu.Abilities) bool { return in.Abilities&a != 0 }
	d.Info = Info{
		Vendor: driver.Vendor(), API: driver.Vendor().String(), Ordinal: ordinal, Name: in.Name, UUID: uuid(in.UUID),
		BusID: strings.ToLower(in.BusID), Arch: in.Arch, Capability: [2]int{in.Major, in.Minor}, Bytes: in.Bytes, Units: in.Units,
		Warp: in.Warp, MaxThreads: in.MaxThreads, Shared: in.Shared, MaxShared: in.MaxShared, CopyEngines: in.CopyEngines,
		Driver: driver.Version(), DMABuf: has(gpu.DMABuf), RDMA: has(gpu.RDMA), VMM: has(gpu.VMM), VMMFD: has(gpu.VMMFD),
		VMMFabric: has(gpu.Fabric), HostAtomics: has(gpu.HostAtomics), SharesMemory: has(gpu.Integrated),
	}
	return d, nil
}

// Current returns the current device of the calling thread, as torch.cuda.set_device sets it; nil
// if none is current. On HIP there always is one. The caller must lock its goroutine to the thread.
func Current() (*Device, error) { return here.current() }

func (s *system) current() (*Device, error) {
	if _, err := s.all(); err != nil {
		return nil, ignoreAbsent(err)
	}
	for _, v := range []Vendor{CUDA, HIP} {
		s.mu.Lock()
		driver, devices := s.drivers[v], s.devices[v]
		s.mu.Unlock()
		if driver == nil {
			continue
		}
		ordinal, err := driver.CurrentDevice()
		if err != nil {
			return nil, fmt.Errorf("query %v for the current device: %w", v, err)
		}
		if ordinal >= 0 && ordinal < len(devices) {
			return devices[ordinal], nil
		}
	}
	return nil, nil
}

// uuid formats an id as the vendors' tools do; AMD's are already text.
func uuid(id [16]byte) string {
	text := true
	for _, b := range id {
		text = text && b > ' ' && b < 0x7f
	}
	if text {
		return "GPU-" + string(id[:])
	}
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// noDevice is the error that has the reason for each vendor.
type noDevice struct {
	whys       []error
	conclusive bool
}

func (e *noDevice) Error() string {
	texts := make([]string, len(e.whys))
	for i, why := range e.whys {
		texts[i] = strings.TrimSuffix(why.Error(), ": "+errors.ErrUnsupported.Error())
	}
	return "no GPU: " + strings.Join(texts, "; ")
}

// Is matches errors.ErrUnsupported if no vendor's answer can change.
func (e *noDevice) Is(target error) bool { return e.conclusive && target == errors.ErrUnsupported }

// MemInfo returns the free and the total memory of the device.
func (d *Device) MemInfo() (free, total uint64, err error) { return d.gpu.MemInfo() }

// A Reach describes the access of a device to another one's memory.
type Reach struct {
	Access  bool   `json:"access"`  // kernels load and store there, copies are direct
	Atomics bool   `json:"atomics"` // it supports the link's native atomics
	Link    string `json:"link"`    // "NVLink", "xGMI", "PCIe", or "" without access
	Rank    int    `json:"rank"`    // the driver's performance rank: lower is faster
	Hops    int    `json:"hops"`    // 0 if unknown
}

var linkNames = map[gpu.LinkKind]string{gpu.PCIe: "PCIe", gpu.NVLink: "NVLink", gpu.XGMI: "xGMI"}

// Reach returns how d accesses peer's memory. On CUDA, links with native atomics count as NVLink,
// because the driver does not name them. Devices of two vendors do not reach each other; a device
// reaches itself with Link "".
func (d *Device) Reach(peer *Device) (Reach, error) {
	if d == peer {
		return Reach{Access: true, Atomics: true}, nil
	}
	if d.gpu.Driver != peer.gpu.Driver {
		return Reach{}, nil
	}
	l, err := d.gpu.Link(peer.Ordinal)
	if err != nil {
		return Reach{}, fmt.Errorf("query how %s reaches %s: %w", d, peer, err)
	}
	return Reach{Access: l.Access, Atomics: l.Atomics, Link: linkNames[l.Kind], Rank: l.Rank, Hops: l.Hops}, nil
}

// EnablePeer gives kernels and copies of d access to all memory of peer. It may be repeated, and
// cannot be undone.
func (d *Device) EnablePeer(peer *Device) error {
	if d == peer {
		return nil
	}
	if d.gpu.Driver != peer.gpu.Driver {
		return fmt.Errorf("let %s use the memory of %s: %w", d, peer, ErrNoPeer)
	}
	if err := d.gpu.EnablePeer(peer.Ordinal); err != nil {
		return fmt.Errorf("let %s use the memory of %s: %w", d, peer, err)
	}
	return nil
}
