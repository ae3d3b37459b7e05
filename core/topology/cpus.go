// SPDX-License-Identifier: MIT

package topology

import (
	"fmt"
	"os"

	"mori/core/internal/sys/thread"
)

// CPUs lists the processors that this process's main thread may run on; a launcher may have bound
// it to them.
func CPUs() ([]int, error) {
	cpus, err := thread.Affinity(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("list the processors of this process: %w", err)
	}
	return cpus, nil
}
