// SPDX-License-Identifier: MIT

package core

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"mori/core/config"
)

// NodeID is the identity of this host: MORI_NODE_ID, else the kernel's boot id, else hostname.
// Processes with equal ids may share memory.
//
// A boot id that is there and cannot be read is an error: without a free descriptor, say, a process
// would have another identity than its neighbours for life.
func NodeID(hostname string) (string, error) {
	if id := config.Get(config.NodeID); id != "" {
		return id, nil
	}
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	switch {
	case err == nil && len(b) > 1:
		return strings.TrimSpace(string(b)), nil
	case err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
		return hostname, nil
	}
	return "", fmt.Errorf("identity of this host: %w", err)
}
