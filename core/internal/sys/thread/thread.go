// SPDX-License-Identifier: MIT

// Package thread schedules the calling thread, and reports where threads may run.
package thread

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"mori/core/internal/sys/futex"
)

// napWord never changes.
var napWord atomic.Uint32

// Nap parks the calling thread for d plus about 60 us. time.Sleep takes up to 1.5 ms if d is below
// one, because the runtime's poller waits in whole milliseconds. A nap occupies a thread, so use it
// only for short waits.
func Nap(d time.Duration) { _ = futex.Wait(futex.WordAddr(&napWord), 0, d, false) }

// Yield lets another thread run on this processor, if one is ready (sched_yield).
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

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
