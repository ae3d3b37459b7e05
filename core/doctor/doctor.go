// SPDX-License-Identifier: MIT

package doctor

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"mori/core"
	"mori/core/device"
	"mori/core/device/survey"
	"mori/core/fabric"
	"mori/core/internal/sys/vm"
	"mori/core/provider/verbs/nics"
	"mori/core/topology"
)

// A Report lists what is on this host, and which path each kind of peer would get.
type Report struct {
	Host  *topology.Host `json:"host"`
	GPUs  []survey.GPU   `json:"gpus"`   // those that this process may not see are in Host only
	NoGPU string         `json:"no_gpu"` // why GPUs is empty
	CMA   nics.Check     `json:"cma"`    // process_vm_readv and process_vm_writev between processes of one user
	Verbs nics.Report    `json:"verbs"`
	Paths []Advice       `json:"paths"`
}

// Advice is the path that a kind of peer gets, and why none of the better ones.
type Advice struct {
	Peer    string   `json:"peer"`
	Path    string   `json:"path"` // "" = none
	Reasons []string `json:"reasons"`
}

// Examine looks at this host. It loads the drivers of GPUs and RDMA devices, makes nothing on any
// device and changes nothing.
func Examine() Report {
	h := topology.Scan(os.DirFS("/"))
	allowed, why := vm.Allowed()
	r := Report{Host: h, CMA: nics.Check{OK: allowed, Reason: why}, Verbs: nics.Look(h)}
	devices, err := device.Devices()
	r.GPUs = survey.GPUs(devices, func(busID string) int { return numa(h, busID) })
	if err != nil {
		r.NoGPU = err.Error()
	}
	r.Paths = append(hostPaths(), gpuPaths(h, err)...)
	return r
}

// numa is the NUMA node of a GPU, -1 if it is not known.
func numa(h *topology.Host, busID string) int {
	at := slices.IndexFunc(h.GPUs, func(g topology.GPU) bool { return g.BusID == busID })
	if at < 0 {
		return -1
	}
	return h.GPUs[at].NUMA
}

// hostPaths advises for peers with host memory at both ends.
func hostPaths() []Advice {
	return []Advice{
		advise("same host, host memory", fabric.Peers{}),
		advise("other host, host memory", fabric.Peers{OtherHost: true}),
	}
}

// gpuPaths advises for peers with GPU memory at one end or both. The error is why there are no
// devices.
func gpuPaths(h *topology.Host, err error) []Advice {
	const same, other = "same host, GPU memory", "other host, GPU memory"
	if err != nil {
		why := []string{noGPU(h, err)}
		return []Advice{{Peer: same, Reasons: why}, {Peer: other, Reasons: why}}
	}
	return []Advice{
		advise(same, fabric.Peers{GPUMemory: true}),
		advise(other, fabric.Peers{GPUMemory: true, OtherHost: true},
			"FABRIC: no provider of this build moves GPU memory over a fabric between hosts"),
	}
}

// advise asks the providers, the preferred one first, until one has a path. missing are better
// paths that no provider has.
func advise(name string, peers fabric.Peers, missing ...string) Advice {
	a := Advice{Peer: name, Reasons: []string{}}
	for _, r := range core.Registrations() {
		if !serves(&r, peers) {
			continue
		}
		d := r.Diagnose(peers)
		if a.Path = d.Path; a.Path != "" {
			a.Reasons = append(a.Reasons, missing...)
		}
		if a.Reasons = append(a.Reasons, d.Reasons...); a.Path != "" {
			break
		}
	}
	return a
}

// serves reports whether a provider is made for a kind of peer.
func serves(r *fabric.Registration, p fabric.Peers) bool {
	if p.OtherHost && r.Scope == fabric.ScopeHost {
		return false
	}
	if p.GPUMemory {
		return r.GPUMemory
	}
	return r.HostMemory
}

// noGPU says why no GPU is used, though the drivers were asked.
func noGPU(h *topology.Host, drivers error) string {
	switch {
	case len(h.GPUs) == 0:
		return "this host has no GPU (no display or accelerator device of NVIDIA or AMD on the PCI bus)"
	case len(h.Drivers) == 0:
		return fmt.Sprintf("no GPU driver is loaded on this host for its %d GPUs", len(h.GPUs))
	}
	return fmt.Sprintf("this host has %d GPUs and a driver (%s), but this process cannot use it: %v", len(h.GPUs), strings.Join(h.Drivers, ", "), drivers)
}
