// SPDX-License-Identifier: MIT

package core

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mori/core/device"
	"mori/core/topology"
	"mori/native/verbs"
)

// A GPU is a device that a driver answers for; those that this process may not see are in Host
// only.
type GPU struct {
	API     string `json:"api"` // "CUDA", "HIP"
	Ordinal int    `json:"ordinal"`
	Name    string `json:"name"`
	Arch    string `json:"arch"`
	MiB     uint64 `json:"mib"`
	BusID   string `json:"bus_id"`
	UUID    string `json:"uuid"`
	Driver  int    `json:"driver"`  // its version, as the vendor numbers it
	NUMA    int    `json:"numa"`    // -1 = not known
	Kernels string `json:"kernels"` // the compiled kernels that it gets: "sm_90.ptx", "" without any
	Reach   string `json:"reach"`   // the memory of others that it reaches: "1, 2 by NVLink; 3 by PCIe"
}

// gpuPaths advises for peers with GPU memory at one end or both. The error is why there are no
// devices.
func gpuPaths(h *topology.Host, devices []*device.Device, err error) []Advice {
	same, other := Advice{Peer: "same host, GPU memory"}, Advice{Peer: "other host, GPU memory"}
	if err != nil {
		same.Reasons = []string{noGPU(h, err)}
		other.Reasons = same.Reasons
		return []Advice{same, other}
	}
	same.Path, same.Reasons = "p2p/gpu", append(weakLinks(linksOf(devices)), withoutKernels(devices)...)
	other.Path = "verbs/rdma"
	other.Reasons = []string{"FABRIC: no provider of this build moves GPU memory over a fabric between hosts"}
	if why := noRDMA(h, verbs.Load()); why != "" {
		other.Path = "tcp"
		other.Reasons = []string{why, other.Reasons[0], "GPU memory passes through pinned host memory on both sides"}
	}
	return []Advice{same, other}
}

// gpus lists what the drivers answer for.
func gpus(h *topology.Host, devices []*device.Device) []GPU {
	all := make([]GPU, len(devices))
	for i, d := range devices {
		all[i] = GPU{API: d.API, Ordinal: d.Ordinal, Name: d.Name, Arch: d.Arch, MiB: d.Bytes >> 20, BusID: d.BusID, UUID: d.UUID, Driver: d.Driver, NUMA: -1}
		if at := slices.IndexFunc(h.GPUs, func(g topology.GPU) bool { return g.BusID == d.BusID }); at >= 0 {
			all[i].NUMA = h.GPUs[at].NUMA
		}
		all[i].Kernels, _ = kernels(d)
		all[i].Reach = reach(d, devices)
	}
	return all
}

// kernels names the compiled kernels for d. All kernels are compiled for the same devices.
func kernels(d *device.Device) (string, error) {
	file, err := d.KernelFile("io_copy_blocks")
	if err == nil {
		_, err = os.Stat(file)
	}
	if err != nil {
		return "", err
	}
	_, arch, _ := strings.Cut(filepath.Base(file), ".")
	return arch, nil
}

// withoutKernels says which GPUs have no kernels, and why.
func withoutKernels(devices []*device.Device) []string {
	var these groups
	for _, d := range devices {
		if _, err := kernels(d); err != nil {
			these.add(err.Error(), d.Ordinal)
		}
	}
	return these.write(func(why, numbers string) string {
		return fmt.Sprintf("GPU %s copies scattered blocks one by one, because it has no kernels: %s", numbers, why)
	})
}

// reach names the other devices whose memory d reaches, and the link.
func reach(d *device.Device, all []*device.Device) string {
	var to groups
	for _, peer := range all {
		if peer == d {
			continue
		}
		if r, err := d.Reach(peer); err != nil {
			to.add(err.Error(), peer.Ordinal)
		} else if r.Access {
			to.add(r.Link, peer.Ordinal)
		}
	}
	return strings.Join(to.write(func(link, numbers string) string { return numbers + " by " + link }), "; ")
}

// Groups are numbers of GPUs by what is said of them, in the order in which it was first said.
type groups struct {
	said    []string
	numbers map[string][]string
}

func (g *groups) add(what string, number int) {
	if g.numbers == nil {
		g.numbers = make(map[string][]string)
	}
	if g.numbers[what] == nil {
		g.said = append(g.said, what)
	}
	g.numbers[what] = append(g.numbers[what], strconv.Itoa(number))
}

func (g *groups) write(line func(what, numbers string) string) []string {
	var lines []string
	for _, what := range g.said {
		lines = append(lines, line(what, strings.Join(g.numbers[what], ", ")))
	}
	return lines
}

// A link is between two GPUs.
type link struct {
	a, b int
	kind string // "NVLink", "xGMI", "PCIe", "" without peer access
}

// linksOf asks the drivers about each pair. One that reaches the other and is not reached counts as
// not reached.
func linksOf(devices []*device.Device) []link {
	var all []link
	for i, a := range devices {
		for _, b := range devices[i+1:] {
			l := link{a: a.Ordinal, b: b.Ordinal}
			there, err := a.Reach(b)
			back, err2 := b.Reach(a)
			if err == nil && err2 == nil && there.Access && back.Access {
				l.kind = there.Link
			}
			all = append(all, l)
		}
	}
	return all
}

// weakLinks says between which GPUs copies are slower than they could be.
func weakLinks(links []link) []string {
	pairs := map[string][]string{}
	for _, l := range links {
		pairs[l.kind] = append(pairs[l.kind], fmt.Sprintf("%d-%d", l.a, l.b))
	}
	reasons := []string{}
	for _, weak := range []struct{ kind, why string }{
		{"", "no peer access, so copies use host memory"}, {"PCIe", "over PCIe, without NVLink or xGMI"},
	} {
		if these := pairs[weak.kind]; len(these) == len(links) && len(these) > 1 {
			reasons = append(reasons, "between all GPUs: "+weak.why)
		} else if len(these) > 0 {
			reasons = append(reasons, fmt.Sprintf("between GPUs %s: %s", strings.Join(these, ", "), weak.why))
		}
	}
	return reasons
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
