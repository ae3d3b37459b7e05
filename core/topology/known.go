// SPDX-License-Identifier: MIT

package topology

import (
	"strconv"
	"strings"
)

// Facts about vendors' parts that the parts do not report themselves.

// rdmaModules are the modules that make RDMA devices, by the driver of the network card below.
var rdmaModules = map[string]string{"mlx5_core": "mlx5_ib", "mlx4_core": "mlx4_ib", "bnxt_en": "bnxt_re", "ionic": "ionic_rdma", "ice": "irdma"}

// RDMAModule is the kernel module that makes RDMA devices of network cards with this driver, "" if
// none is known.
func RDMAModule(driver string) string { return rdmaModules[driver] }

// firmwareFloors are the least versions that public reports of mori's users call good, by PCI
// vendor and part (0: any), for the branch of versions that begins so, or for all.
var firmwareFloors = []struct {
	vendor, part  uint32
	branch, least string
}{
	{0x14e4, 0x1760, "237.", "237.1.137"}, // Broadcom Thor 2
	{0x14e4, 0x1760, "", "235.2.86"},
	{0x1dd8, 0, "", "1.117.5"}, // AMD Pollara
}

// FirmwareFloor is the least firmware that is known good for an RDMA device, if its own is older;
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

// olderThan compares the numbers of versions, up to what is no number.
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
