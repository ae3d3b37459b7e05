// SPDX-License-Identifier: MIT

package gpu

// #include "gpu.h"
import "C"

// Abilities are a device's abilities, as bits.
type Abilities uint32

// The abilities.
const (
	HostAtomics Abilities = C.GPU_HAS_HOST_ATOMICS // atomics on host memory work over the link to it
	VMM         Abilities = C.GPU_HAS_VMM          // addresses and memory are allocated separately, then mapped
	VMMFD       Abilities = C.GPU_HAS_VMM_FD       // other processes can import such memory through a descriptor
	Fabric      Abilities = C.GPU_HAS_FABRIC       // other hosts of the fabric can import it through a handle
	DMABuf      Abilities = C.GPU_HAS_DMABUF       // memory can be exported as a dma-buf, for NICs
	RDMA        Abilities = C.GPU_HAS_RDMA         // NICs access memory through a kernel module
	VMMRDMA     Abilities = C.GPU_HAS_VMM_RDMA     // NICs access VMM memory, too
	Integrated  Abilities = C.GPU_HAS_INTEGRATED   // device memory is host memory
)

// Info describes a device, as its driver does.
type Info struct {
	Name, BusID, Arch string
	UUID              [16]byte
	Bytes             uint64
	Major, Minor      int
	Units             int // multiprocessors, compute units
	Warp              int // threads
	MaxThreads        int // of a block
	Shared, MaxShared int // bytes of a block: without and with Function.SetShared
	ClockKHz, L2Bytes int
	CopyEngines       int
	Abilities         Abilities
}

// Describe returns the device's properties. It does not enter a device.
func (d Device) Describe() (Info, error) {
	var c C.struct_gpu_info
	if err := d.check(C.gpu_describe(d.Driver.api, d.id(), &c)); err != nil {
		return Info{}, err
	}
	in := Info{
		Name: C.GoString(&c.name[0]), BusID: C.GoString(&c.bus[0]), Arch: C.GoString(&c.arch[0]), Bytes: uint64(c.bytes),
		Major: int(c.major), Minor: int(c.minor), Units: int(c.units), Warp: int(c.warp), MaxThreads: int(c.threads),
		Shared: int(c.shared), MaxShared: int(c.shared_most), ClockKHz: int(c.clock_khz), L2Bytes: int(c.l2_bytes),
		CopyEngines: int(c.copy_engines), Abilities: Abilities(c.has),
	}
	for i, b := range c.uuid {
		in.UUID[i] = byte(b)
	}
	return in, nil
}

// A LinkKind is the kind of link between two devices.
type LinkKind int

// The kinds of links.
const (
	NoLink LinkKind = C.GPU_LINK_NONE
	PCIe   LinkKind = C.GPU_LINK_PCIE
	NVLink LinkKind = C.GPU_LINK_NVLINK
	XGMI   LinkKind = C.GPU_LINK_XGMI
)

// A Link is how one device can access the memory of another.
type Link struct {
	Access, Atomics bool
	Rank            int // the driver's performance rank: lower is faster
	Kind            LinkKind
	Hops            int // 0 if unknown
}

// Link returns how d accesses peer's memory. It does not enter a device.
func (d Device) Link(peer int) (Link, error) {
	var c C.struct_gpu_link
	if err := d.check(C.gpu_link(d.Driver.api, d.id(), C.int(peer), &c)); err != nil {
		return Link{}, err
	}
	return Link{Access: c.access != 0, Atomics: c.atomics != 0, Rank: int(c.rank), Kind: LinkKind(c.kind), Hops: int(c.hops)}, nil
}

// EnablePeer lets kernels and copies of d access peer's memory, including memory that is allocated
// later. Repeated calls are allowed.
func (d Device) EnablePeer(peer int) error {
	return d.check(C.gpu_peer_enable(d.Driver.api, d.id(), C.int(peer)))
}

// MemInfo returns the free and the total memory, in bytes.
func (d Device) MemInfo() (free, total uint64, err error) {
	var f, t C.uint64_t
	err = d.check(C.gpu_mem_info(d.Driver.api, d.id(), &f, &t))
	return uint64(f), uint64(t), err
}
