// SPDX-License-Identifier: MIT

package core

import (
	"fmt"
	"os"

	"mori/core/device"
	"mori/core/internal/sys"
	"mori/core/internal/sys/vm"
	"mori/core/topology"
	"mori/native/verbs"
)

// A Report lists what is on this host, and which path each kind of peer would get.
type Report struct {
	Host  *topology.Host `json:"host"`
	GPUs  []GPU          `json:"gpus"`
	NoGPU string         `json:"no_gpu"` // why GPUs is empty
	CMA   Check          `json:"cma"`    // process_vm_readv and process_vm_writev between processes of one user
	Verbs Verbs          `json:"verbs"`
	Paths []Advice       `json:"paths"`
}

// A Check is a yes or no with its reason.
type Check struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason"`
}

// Advice is the path that a kind of peer gets, and why none of the better ones.
type Advice struct {
	Peer    string   `json:"peer"`
	Path    string   `json:"path"` // "" = none
	Reasons []string `json:"reasons"`
}

// Doctor looks at this host. It loads the drivers of GPUs and RDMA devices, makes nothing on any
// device and changes nothing.
func Doctor() Report {
	h := topology.Scan(os.DirFS("/"))
	r := Report{Host: h, CMA: checkCMA(), Verbs: doctorVerbs(h)}
	devices, err := device.Devices()
	r.GPUs = gpus(h, devices)
	if err != nil {
		r.NoGPU = err.Error()
	}
	local := Advice{Peer: "same host, host memory", Path: "shm/cma", Reasons: []string{}}
	if !r.CMA.OK {
		local.Path = "shm/stream"
		local.Reasons = append(local.Reasons, "shm/cma: "+r.CMA.Reason)
	}
	far := Advice{Peer: "other host, host memory", Path: "verbs/rdma", Reasons: []string{}}
	if why := noRDMA(h, verbs.Load()); why != "" {
		far.Path, far.Reasons = "tcp", []string{why}
	}
	r.Paths = append([]Advice{local, far}, gpuPaths(h, devices, err)...)
	return r
}

// checkCMA asks the kernel about this process first, which shows a seccomp filter, and Yama about
// others.
func checkCMA() Check {
	var word [8]byte
	at := []sys.Iovec{{Addr: sys.AddrOf(word[:]), Len: 8}}
	if _, err := vm.Read(os.Getpid(), at, at); err != nil {
		return Check{false, fmt.Sprintf("process_vm_readv is refused (%v): a seccomp filter or a kernel without CONFIG_CROSS_MEMORY_ATTACH", err)}
	}
	scope, err := vm.PtraceScope()
	switch {
	case err != nil:
		return Check{false, fmt.Sprintf("unknown: %v", err)}
	case scope == vm.PtraceClassic:
		return Check{true, "allowed between processes of one user"}
	case scope == vm.PtraceRestricted:
		return Check{true, "allowed if the target agrees, which mori does (kernel.yama.ptrace_scope is 1)"}
	case scope == vm.PtraceAdmin && os.Geteuid() == 0:
		return Check{true, "allowed for root (kernel.yama.ptrace_scope is 2)"}
	}
	return Check{false, fmt.Sprintf("kernel.yama.ptrace_scope is %d; set it to 0 or 1", scope)}
}
