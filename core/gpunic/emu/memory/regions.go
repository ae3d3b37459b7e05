// SPDX-License-Identifier: MIT

package memory

import (
	"fmt"

	"mori/core/gpunic/mlx5"
)

// A Pinned is memory that is registered with a NIC.
type Pinned struct {
	Addr, N uint64
	Mem     Memory
	Users   int // objects that use it; it cannot be freed before them
}

// A Region is memory that a protection domain may access with a key.
type Region struct {
	Pinned                         *Pinned
	PD                             uint32
	Key                            uint32
	Addr, N                        uint64
	Write, RemoteWrite, RemoteRead bool
	Atomic, Relaxed                bool
}

// Mem returns the Memory that accesses the region's bytes.
func (k *Region) Mem() Memory { return k.Pinned.Mem }

// A Right is a right that an access needs.
type Right uint8

// The kinds of access: by the NIC's own work, or by its peer's.
const (
	ToRead Right = iota
	ToWrite
	ToRemoteRead
	ToRemoteWrite
	ToAtomic
)

func (k *Region) allows(r Right) bool {
	switch r {
	case ToRead:
		return true
	case ToWrite:
		return k.Write
	case ToRemoteRead:
		return k.RemoteRead
	case ToRemoteWrite:
		return k.RemoteWrite
	}
	return k.Atomic
}

// Regions are a NIC's regions, by the number in their key.
type Regions map[uint32]*Region

// A Domain is a protection domain. It has the regions that its queue pairs may access.
type Domain struct {
	Regions Regions
	PD      uint32
}

// Region returns the region of a key for n bytes at addr, or an error that says why it denies the
// access.
func (d Domain) Region(key uint32, addr, n uint64, need Right) (*Region, error) {
	k := d.Regions[key>>8]
	switch {
	case k == nil || k.Key != key:
		return nil, fmt.Errorf("key %#x: unknown key", key)
	case k.PD != d.PD:
		return nil, fmt.Errorf("key %#x: of another protection domain", key)
	case !k.allows(need):
		return nil, fmt.Errorf("key %#x: access right %d was not granted", key, need)
	case addr < k.Addr || n > k.N || addr-k.Addr > k.N-n:
		return nil, fmt.Errorf("key %#x: %d bytes at %#x are not in its %d at %#x", key, n, addr, k.N, k.Addr)
	}
	return k, nil
}

// A ProtectionError reports an access to memory that no region allows.
type ProtectionError struct{ error }

// Gather reads from a list of memory, starting at an offset in it, until b is full.
func (d Domain) Gather(list []mlx5.Data, offset uint64, b []byte) error {
	return d.each(list, offset, b, ToRead, Memory.Read)
}

// Scatter writes b to a list of memory, starting at an offset in it.
func (d Domain) Scatter(list []mlx5.Data, offset uint64, b []byte) error {
	return d.each(list, offset, b, ToWrite, Memory.Write)
}

func (d Domain) each(list []mlx5.Data, offset uint64, b []byte, need Right, move func(Memory, uint64, []byte) error) error {
	for _, e := range list {
		if offset >= uint64(e.Bytes) {
			offset -= uint64(e.Bytes)
			continue
		}
		n := min(uint64(e.Bytes)-offset, uint64(len(b)))
		k, err := d.Region(e.Key, e.Addr+offset, n, need)
		if err != nil {
			return ProtectionError{err}
		}
		if err := move(k.Mem(), e.Addr+offset, b[:n]); err != nil {
			return err
		}
		if b, offset = b[n:], 0; len(b) == 0 {
			return nil
		}
	}
	return nil
}
