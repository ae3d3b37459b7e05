// SPDX-License-Identifier: MIT

// Package limits checks the remaining limits of a process before it starts something essential: the
// Go runtime ends the process when it gets no thread.
package limits

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strconv"
	"syscall"

	"mori/native/threads"
)

// ErrShort is the cause of errors of this package. The same call may succeed after something was
// freed.
var ErrShort = errors.New("a limit of this process is reached")

// besides is the number of threads that the runtime starts beside those that run Go code: for
// blocking system calls, such as the copies of workers. 11 were measured under load on 2 cores.
const besides = 16

// Threads checks that the system allows as many threads as the Go runtime may still start. It takes
// about 20 µs per thread.
func Threads() error {
	need := runtime.GOMAXPROCS(0) + besides - pprof.Lookup("threadcreate").Count()
	if need <= 0 {
		return nil
	}
	got, err := threads.Probe(need)
	if err != syscall.EAGAIN {
		return nil // another error is not about a limit of threads
	}
	return fmt.Errorf("%d more threads are needed, but the system allows %d: raise ulimit -u or pids.max of the cgroup, or lower GOMAXPROCS: %w (%w)",
		need, got, ErrShort, err)
}

// Descriptors checks that this process may open need more files.
func Descriptors(need int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return nil // opening files will report more
	}
	open, err := openFiles()
	left := limit.Cur
	switch {
	case IsShort(err):
		left = 0
	case err != nil:
		return nil
	}
	for _, name := range open {
		if n, err := strconv.ParseUint(name, 10, 64); err == nil && n < limit.Cur && left > 0 {
			left--
		}
	}
	if left >= uint64(need) {
		return nil
	}
	return fmt.Errorf("%d more descriptors are needed, but %d of %d are free: close some, or raise ulimit -n: %w (%w)", need, left, limit.Cur,
		ErrShort, syscall.EMFILE)
}

// openFiles lists the descriptors of this process without package os: the first file that os opens
// makes the runtime open its poller, and if that fails, the process ends.
func openFiles() (names []string, err error) {
	dir, err := syscall.Open("/proc/self/fd", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(dir) }()
	buf := make([]byte, 32<<10)
	for {
		n, err := syscall.ReadDirent(dir, buf)
		if n <= 0 || err != nil {
			return names, err
		}
		_, _, names = syscall.ParseDirent(buf[:n], -1, names)
	}
}

// IsShort reports whether err is about a limit of descriptors, of the process or the system.
func IsShort(err error) bool {
	return errors.Is(err, ErrShort) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
