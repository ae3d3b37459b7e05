// SPDX-License-Identifier: MIT

package sys

import "golang.org/x/sys/unix"

// Affinity lists the processors that a thread may run on, in order.
func Affinity(tid int) (cpus []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(tid, &set); err != nil {
		return nil, err
	}
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
