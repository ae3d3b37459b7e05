// SPDX-License-Identifier: MIT

package core

import (
	"os"
	"strings"

	"mori/core/config"
)

// NodeID is the identity of this host: MORI_NODE_ID, else the kernel's boot id, else hostname. Processes with equal ids may share
// memory.
func NodeID(hostname string) string {
	if id := config.Get(config.NodeID); id != "" {
		return id
	}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil && len(b) > 1 {
		return strings.TrimSpace(string(b))
	}
	return hostname
}
