// SPDX-License-Identifier: MIT

package core

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// memlock is how much memory this process may lock, which each registration does.
type memlock struct {
	bytes uint64
	free  bool // it may lock all there is, by a capability
	err   error
}

func lockedMemory() memlock {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return memlock{err: err}
	}
	caps := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	err := unix.Capget(&caps, &has[0])
	return memlock{bytes: r.Cur, free: err == nil && has[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0}
}

// enoughLocked is a limit that a KV cache may fit in.
const enoughLocked = 64 << 30

func (m memlock) check() Check {
	switch {
	case m.err != nil:
		return Check{false, fmt.Sprintf("cannot tell how much memory may be locked: %v", m.err)}
	case m.free:
		return Check{true, "unlimited (CAP_IPC_LOCK)"}
	case m.bytes == unix.RLIM_INFINITY:
		return Check{true, "unlimited"}
	case m.bytes >= enoughLocked:
		return Check{true, fmt.Sprintf("%d GiB may be locked", m.bytes>>30)}
	}
	return Check{false, fmt.Sprintf("%d KiB may be locked, and memory is registered by locking it", m.bytes>>10)}
}

// mayUse tells whether this process may read and write a file.
func mayUse(file string) error { return unix.Access(file, unix.R_OK|unix.W_OK) }

// gpuDirect tells whether NICs can reach the memory of this host's GPUs. Whether they do is only known when a GPU's memory is registered.
func (s *sight) gpuDirect() Check {
	if len(s.host.GPUs) == 0 {
		return Check{false, "there is no GPU on this host"}
	}
	for _, module := range []string{"nvidia_peermem", "nv_peer_mem", "ib_peer_mem"} {
		if s.loaded(module) {
			return Check{true, "by the module " + module}
		}
	}
	release, _ := fs.ReadFile(s.root, "proc/sys/kernel/osrelease")
	text := strings.TrimSpace(string(release))
	switch {
	case text == "" || olderThan(text, "5.12"):
		return Check{false, fmt.Sprintf("NICs do not reach GPU memory: no peer memory module is loaded, and Linux %s has no dma-buf for RDMA (5.12 does)", cmp.Or(text, "(version unknown)"))}
	case s.loaded("amdgpu"), s.openNVIDIA():
		return Check{true, "by dma-buf, if the NIC's driver takes it"}
	}
	return Check{false, "NICs do not reach GPU memory: no peer memory module is loaded, and this GPU driver gives no dma-buf"}
}

// openNVIDIA tells whether the driver is the open kernel module, which alone exports memory by dma-buf.
func (s *sight) openNVIDIA() bool {
	version, _ := fs.ReadFile(s.root, "proc/driver/nvidia/version")
	return strings.Contains(string(version), "Open Kernel Module")
}

func (s *sight) gpuDirectRemedy() string {
	if slices.Contains(s.host.Drivers, "nvidia") {
		return "modprobe nvidia-peermem, or install the open kernel module of the driver; GPU memory passes through host memory until then"
	}
	return "load the GPU's driver with dma-buf on Linux 5.12 or newer; GPU memory passes through host memory until then"
}
