// SPDX-License-Identifier: MIT

package emu

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"runtime/debug"
	"syscall"

	"mori/core/internal/sys"
)

// A Memory is how to reach bytes that are not plainly this process's. Its methods are called by the
// NIC's thread, one at a time; they return when the bytes have moved, and call no method of the
// NIC.
type Memory interface {
	Read(addr uint64, b []byte) error
	Write(addr uint64, b []byte) error
}

// words is what a Memory may do beside: change a word of width 4 or 8 atomically with what else
// this process does.
type words interface {
	change(addr uint64, width int, f func(old uint64) uint64) (old uint64, err error)
}

// hostMemory is this process's memory. A page that is not there is EFAULT.
type hostMemory struct{}

var _ words = hostMemory{}

func (hostMemory) Read(addr uint64, b []byte) error {
	err := sys.Move(sys.AddrOf(b), addr, uint64(len(b)))
	runtime.KeepAlive(b)
	return err
}

func (hostMemory) Write(addr uint64, b []byte) error {
	err := sys.Move(addr, sys.AddrOf(b), uint64(len(b)))
	runtime.KeepAlive(b)
	return err
}

func (hostMemory) change(addr uint64, width int, f func(uint64) uint64) (old uint64, err error) {
	defer guard(&err)()
	for {
		if width == 4 {
			was := sys.Load32(addr)
			if sys.CompareAndSwap32(addr, was, uint32(f(uint64(was)))) {
				return uint64(was), nil
			}
			continue
		}
		was := sys.Load64(addr)
		if sys.CompareAndSwap64(addr, was, f(was)) {
			return was, nil
		}
	}
}

// guard turns the touch of a page that is not there into EFAULT: defer guard(&err)().
func guard(err *error) func() {
	was := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(was)
		if r := recover(); r != nil {
			if _, fault := r.(interface{ Addr() uintptr }); !fault {
				panic(r)
			}
			*err = syscall.EFAULT
		}
	}
}

// changeBytes changes a word of memory that has no atomics of its own: it is atomic to other work
// of this NIC, as with real ones.
func changeBytes(m Memory, addr uint64, width int, f func(uint64) uint64) (old uint64, err error) {
	if w, ok := m.(words); ok {
		return w.change(addr, width, f)
	}
	b := make([]byte, 8)
	if err = m.Read(addr, b[:width]); err != nil {
		return 0, err
	}
	old = binary.LittleEndian.Uint64(b)
	binary.LittleEndian.PutUint64(b, f(old))
	return old, m.Write(addr, b[:width])
}

// A umem is memory that the NIC knows.
type umem struct {
	addr, n uint64
	mem     Memory
	users   int // mailboxes that name it: it cannot go before they do
}

// An mkey is a registered region.
type mkey struct {
	umem                    *umem
	pd                      uint32
	key                     uint32
	addr, n                 uint64
	write, remoteW, remoteR bool
	atomic, relaxed         bool
}

// right is what an access needs.
type right uint8

const (
	rightRead right = iota
	rightWrite
	rightRemoteRead
	rightRemoteWrite
	rightAtomic
)

func (k *mkey) allows(r right) bool {
	switch r {
	case rightRead:
		return true
	case rightWrite:
		return k.write
	case rightRemoteRead:
		return k.remoteR
	case rightRemoteWrite:
		return k.remoteW
	}
	return k.atomic
}

// region finds the region of a key for n bytes at addr, or says why not.
func (n *NIC) region(key, pd uint32, addr, bytes uint64, need right) (*mkey, error) {
	k := n.mkeys[key>>8]
	switch {
	case k == nil || k.key != key:
		return nil, fmt.Errorf("key %#x: unknown key", key)
	case k.pd != pd:
		return nil, fmt.Errorf("key %#x: of another protection domain", key)
	case !k.allows(need):
		return nil, fmt.Errorf("key %#x: access right %d was not granted", key, need)
	case addr < k.addr || bytes > k.n || addr-k.addr > k.n-bytes:
		return nil, fmt.Errorf("key %#x: %d bytes at %#x are not in its %d at %#x", key, bytes, addr, k.n, k.addr)
	}
	return k, nil
}
