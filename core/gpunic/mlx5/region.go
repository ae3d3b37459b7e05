// SPDX-License-Identifier: MIT

package mlx5

import (
	"fmt"
	"os"
	"sync"

	"mori/native/abi"
)

// Access is the set of rights of a region, in addition to being read by its owner's work.
type Access uint8

// Kinds of access.
const (
	AccessLocalWrite Access = 1 << iota
	AccessRemoteWrite
	AccessRemoteRead
	AccessAtomic
	// AccessRelaxed lets writes to the region become visible in any order, and after later writes to
	// other regions with this right. A flag word that announces data must be in a region without it.
	AccessRelaxed

	AccessAll = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessAtomic
)

// A Region is registered memory. The owner keeps the memory until Close has returned.
type Region struct {
	dev        *Device
	addr, n    uint64
	key        uint32 // one key for local and remote access
	umem       uint32
	closeOnce  sync.Once
	closeError error
}

// keyVariant is the low byte of keys, which the NIC compares in addition to the index.
const keyVariant = 0x5a

// Register registers n bytes of this process at addr with the NIC.
func (d *Device) Register(addr, n uint64, access Access) (*Region, error) {
	if n == 0 || addr+n < addr {
		return nil, fmt.Errorf("register %d bytes at %#x: %w", n, addr, ErrArgument)
	}
	if err := d.hold(); err != nil {
		return nil, err
	}
	r := &Region{dev: d, addr: addr, n: n}
	if err := r.make(access); err != nil {
		d.release()
		return nil, fmt.Errorf("register %d bytes at %#x on %s: %w", n, addr, d.Name(), err)
	}
	return r, nil
}

func (r *Region) make(access Access) (err error) {
	page := uint64(os.Getpagesize())
	begin := r.addr &^ (page - 1)
	end := (r.addr + r.n + page - 1) &^ (page - 1)
	if r.umem, err = r.dev.cmd.Umem(begin, end-begin); err != nil {
		return err
	}
	pages := uint32((end - begin) / page)
	var log uint32
	for 1<<log < page {
		log++
	}
	index, err := r.dev.make(&CreateMKey{
		Op: OpCreateMKey, UmemValid: true, UmemID: r.umem, AccessMode: AccessModeMTT, QPN: AnyQPN, Variant: keyVariant, PD: r.dev.pd,
		Addr: r.addr, Bytes: r.n, UmemOffset: 0, LogPageSize: log, Translations: (pages + 1) / 2, TranslationsActual: (pages + 1) / 2,
		LocalRead: true, LocalWrite: access&AccessLocalWrite != 0, RemoteWrite: access&AccessRemoteWrite != 0,
		RemoteRead: access&AccessRemoteRead != 0, Atomic: access&AccessAtomic != 0, RelaxedOrdering: access&AccessRelaxed != 0,
	})
	if err != nil {
		_ = r.dev.cmd.FreeUmem(r.umem)
		return err
	}
	r.key = index<<8 | keyVariant
	return nil
}

// View returns the region as device code refers to it.
func (r *Region) View() abi.NICMemory {
	return abi.NICMemory{Addr: r.addr, Bytes: r.n, LKey: r.key, RKey: r.key}
}

// Close deregisters the memory. Work that uses it afterwards fails.
func (r *Region) Close() error {
	r.closeOnce.Do(func() {
		r.closeError = r.dev.simple(OpDestroyMKey, r.key>>8)
		if err := r.dev.cmd.FreeUmem(r.umem); r.closeError == nil {
			r.closeError = err
		}
		r.dev.release()
	})
	return r.closeError
}
