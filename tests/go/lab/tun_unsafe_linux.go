// SPDX-License-Identifier: MIT

package lab

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ifreq is struct ifreq of linux/if.h as TUNSETIFF reads it.
type ifreq struct {
	name  [unix.IFNAMSIZ]byte
	flags uint16
	_     [22]byte
}

// openTUN makes a TUN device in a named network namespace.
func openTUN(ns, name string) (*os.File, error) {
	type result struct {
		f   *os.File
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is in the other namespace and ends with its goroutine
		f, err := tunHere(ns, name)
		done <- result{f, err}
	}()
	r := <-done
	return r.f, r.err
}

func tunHere(ns, name string) (*os.File, error) {
	nsfd, err := unix.Open("/run/netns/"+ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open namespace %s: %w", ns, err)
	}
	defer func() { _ = unix.Close(nsfd) }()
	if err := unix.Setns(nsfd, unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter namespace %s: %w", ns, err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req := ifreq{flags: unix.IFF_TUN | unix.IFF_NO_PI}
	copy(req.name[:], name)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&req))); e != 0 {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make TUN device %s in %s: %w", name, ns, e)
	}
	return os.NewFile(uintptr(fd), name), nil
}
