// SPDX-License-Identifier: MIT

package survey

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"mori/core/device"
)

// A GPU is a device that a driver answers for.
type GPU struct {
	API     string `json:"api"` // "CUDA", "HIP"
	Ordinal int    `json:"ordinal"`
	Name    string `json:"name"`
	Arch    string `json:"arch"`
	MiB     uint64 `json:"mib"`
	BusID   string `json:"bus_id"`
	UUID    string `json:"uuid"`
	Driver  int    `json:"driver"`  // version, in the vendor's numbering
	NUMA    int    `json:"numa"`    // -1 = unknown
	Kernels string `json:"kernels"` // the compiled kernels that it gets: "sm_90.ptx", "" without any
	Reach   string `json:"reach"`   // the memory of others that it reaches: "1, 2 by NVLink; 3 by PCIe"
}

// GPUs lists devices. numa returns the node of a place on the bus, -1 if it is not known.
func GPUs(devices []*device.Device, numa func(busID string) int) []GPU {
	all := make([]GPU, len(devices))
	for i, d := range devices {
		all[i] = GPU{API: d.API, Ordinal: d.Ordinal, Name: d.Name, Arch: d.Arch, MiB: d.Bytes >> 20,
			BusID: d.BusID, UUID: d.UUID, Driver: d.Driver, NUMA: numa(d.BusID), Reach: reach(d, devices)}
		all[i].Kernels, _ = kernels(d)
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

// WithoutKernels says which GPUs have no kernels, and why.
func WithoutKernels(devices []*device.Device) []string {
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
