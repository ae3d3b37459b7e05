// SPDX-License-Identifier: MIT

package topology

import (
	"strconv"
	"strings"
)

// Facts about vendors' devices that the devices do not report themselves.

// rdmaModules maps drivers of network cards to the kernel modules that create their RDMA devices.
var rdmaModules = map[string]string{"mlx5_core": "mlx5_ib", "mlx4_core": "mlx4_ib", "bnxt_en": "bnxt_re", "ionic": "ionic_rdma", "ice": "irdma"}

// RDMAModule returns the kernel module that creates RDMA devices for network cards with this
// driver, "" if unknown.
func RDMAModule(driver string) string { return rdmaModules[driver] }

// firmwareFloors are the oldest versions that public reports of mori's users call good, by PCI
// vendor and part (0: any), for the branch of versions with this prefix, or for all.
var firmwareFloors = []struct {
	vendor, part  uint32
	branch, least string
}{
	{0x14e4, 0x1760, "237.", "237.1.137"}, // Broadcom Thor 2
	{0x14e4, 0x1760, "", "235.2.86"},
	{0x1dd8, 0, "", "1.117.5"}, // AMD Pollara
}

// FirmwareFloor returns the oldest firmware known to work for an RDMA device, if its own is older;
// else "".
func FirmwareFloor(vendor, part uint32, firmware string) string {
	for _, f := range firmwareFloors {
		if vendor != f.vendor || f.part != 0 && part != f.part || !strings.HasPrefix(firmware, f.branch) {
			continue
		}
		if olderThan(firmware, f.least) {
			return f.least
		}
		break
	}
	return ""
}

// olderThan compares the numbers of versions, up to the first part that is not a number.
func olderThan(version, least string) bool {
	a, b := strings.Split(version, "."), strings.Split(least, ".")
	for i, want := range b {
		if i >= len(a) {
			return true
		}
		digits, _, _ := strings.Cut(a[i], "-")
		x, err := strconv.Atoi(digits)
		y, _ := strconv.Atoi(want)
		if err != nil || x != y {
			return err == nil && x < y
		}
	}
	return false
}
