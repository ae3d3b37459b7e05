// SPDX-License-Identifier: MIT

package topology

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// peerMemoryModules let NICs at the memory of GPUs, each by its own way into the RDMA core.
var peerMemoryModules = []string{"nvidia_peermem", "nv_peer_mem", "ib_peer_mem"}

// dmabufRelease is the kernel from which on RDMA takes dma-bufs.
const dmabufRelease = "5.12"

// GPUDirect reports whether NICs can reach the memory of h's GPUs, by the kernel and its modules in
// root, or why not. Whether a certain NIC does is only known when a GPU's memory is registered.
func (h *Host) GPUDirect(root fs.FS) (can bool, why string) {
	if len(h.GPUs) == 0 {
		return false, "there is no GPU on this host"
	}
	for _, module := range peerMemoryModules {
		if Loaded(root, module) {
			return true, "by the module " + module
		}
	}
	text, _ := fs.ReadFile(root, "proc/sys/kernel/osrelease")
	release := strings.TrimSpace(string(text))
	switch {
	case release == "" || olderThan(release, dmabufRelease):
		return false, fmt.Sprintf("NICs cannot access GPU memory: no peer memory module is loaded, and Linux %s has no dma-buf for RDMA (%s has)", cmp.Or(release, "(version unknown)"), dmabufRelease)
	case Loaded(root, "amdgpu"), openNVIDIA(root):
		return true, "by dma-buf, if the NIC's driver supports it"
	}
	return false, "NICs cannot access GPU memory: no peer memory module is loaded, and this GPU driver does not support dma-buf"
}

// GPUDirectRemedy is what would let NICs at the memory of h's GPUs.
func (h *Host) GPUDirectRemedy() string {
	if slices.Contains(h.Drivers, "nvidia") {
		return "modprobe nvidia-peermem, or install the open kernel module of the driver; until then GPU memory passes through host memory"
	}
	return "load the GPU's driver with dma-buf on Linux " + dmabufRelease + " or newer; until then GPU memory passes through host memory"
}

// Loaded reports whether the kernel of root has a module.
func Loaded(root fs.FS, module string) bool {
	_, err := fs.Stat(root, "sys/module/"+module)
	return err == nil
}

// openNVIDIA reports whether the driver is the open kernel module, which alone exports memory by
// dma-buf.
func openNVIDIA(root fs.FS) bool {
	version, _ := fs.ReadFile(root, "proc/driver/nvidia/version")
	return strings.Contains(string(version), "Open Kernel Module")
}
