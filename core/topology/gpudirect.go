// SPDX-License-Identifier: MIT

package topology

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// peerMemoryModules give NICs access to GPU memory, each by its own interface of the RDMA core.
var peerMemoryModules = []string{"nvidia_peermem", "nv_peer_mem", "ib_peer_mem"}

// dmabufRelease is the first kernel whose RDMA stack supports dma-buf.
const dmabufRelease = "5.12"

// GPUDirect reports whether NICs can access the memory of h's GPUs, judged by the kernel and its
// modules in root, or why not. Whether a particular NIC can is known only when GPU memory is
// registered.
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

// GPUDirectRemedy returns what would give NICs access to the memory of h's GPUs.
func (h *Host) GPUDirectRemedy() string {
	if slices.Contains(h.Drivers, "nvidia") {
		return "modprobe nvidia-peermem, or install the open kernel module of the driver; until then GPU memory passes through host memory"
	}
	return "load the GPU's driver with dma-buf on Linux " + dmabufRelease + " or newer; until then GPU memory passes through host memory"
}

// Loaded reports whether a module is loaded in the kernel of root.
func Loaded(root fs.FS, module string) bool {
	_, err := fs.Stat(root, "sys/module/"+module)
	return err == nil
}

// openNVIDIA reports whether the driver is the open kernel module, the only one that supports
// dma-buf.
func openNVIDIA(root fs.FS) bool {
	version, _ := fs.ReadFile(root, "proc/driver/nvidia/version")
	return strings.Contains(string(version), "Open Kernel Module")
}
