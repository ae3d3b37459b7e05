// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mori/core/internal/sys"
)

// sameBytes checks that a dma-buf of an emulated driver has n bytes of addr at offset: what is
// written there is seen here.
func sameBytes(t *testing.T, fd int, offset, addr, n uint64) {
	t.Helper()
	at, err := unix.Seek(fd, 0, 1)
	ok(t, err)
	there, err := unix.Mmap(fd, at>>24*4096, int(offset+n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED) // see fake_vmm.h
	ok(t, err)
	for i := range n {
		there[offset+i] = byte(i + addr)
	}
	for i, b := range sys.Bytes(addr, int(n)) {
		if b != byte(uint64(i)+addr) {
			t.Fatalf("byte %d of the dma-buf is another one", i)
		}
	}
	ok(t, unix.Munmap(there))
}

// export checks what ExportDmaBuf answers for memory that devices with dma-bufs have one of.
func export(t *testing.T, b *bench, d *Device, addr, n uint64) {
	t.Helper()
	fd, offset, err := d.ExportDmaBuf(addr, n)
	if !d.DMABuf {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "the driver does not support dma-buf") {
			t.Errorf("without dma-bufs: %v", err)
		}
		return
	}
	if b.sys == here && errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err) // of this machine's kernel module, or its GPU
	}
	ok(t, err)
	defer func() { ok(t, unix.Close(fd)) }()
	if flags := must[int](t)(unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)); flags&unix.FD_CLOEXEC == 0 {
		t.Error("programs that are started get the descriptor")
	}
	if offset%4096 != addr%4096 {
		t.Errorf("%#x is at %#x of a dma-buf, which no NIC can be shown", addr, offset)
	}
	if b.sys != here {
		sameBytes(t, fd, offset, addr, n)
	}
}

func TestExportDmaBuf(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		d := b.devices[0]
		m, err := d.Alloc(1 << 20)
		closing(t, m, err)
		export(t, b, d, m.Addr(), m.Bytes())
		export(t, b, d, m.Addr()+8192, 4096)
		export(t, b, d, m.Addr()+5000, 100)
		refuses := func(want error, says string, d *Device, addr, n uint64) {
			t.Helper()
			if fd, _, err := d.ExportDmaBuf(addr, n); fd != -1 || !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
				t.Errorf("%d bytes at %#x: descriptor %d, %v", n, addr, fd, err)
			}
		}
		refuses(ErrInvalid, "the allocation has 1048576 bytes", d, m.Addr()+1, m.Bytes())
		refuses(ErrInvalid, "the allocation has", d, m.Addr(), 0)
		refuses(ErrInvalid, "the allocation has", d, m.Addr(), ^uint64(0))
		refuses(ErrInvalid, "it is host memory", d, addrOf(make([]byte, 8)), 8)
		h, err := d.AllocHost(4096)
		closing(t, h, err)
		refuses(ErrInvalid, "it is pinned host memory", d, h.Addr(), 8)
		if len(b.devices) > 1 {
			refuses(ErrInvalid, "it is memory of "+d.String(), b.devices[1], m.Addr(), 8)
		}
		if b.sys != here && d.DMABuf {
			t.Setenv("FAKE_GPU", "cuMemGetHandleForAddressRange=801")
			refuses(errors.ErrUnsupported, "make a dma-buf of 4096 bytes at", d, m.Addr(), 4096)
		}
	})
}

func TestExportDmaBufOfVirtualMemory(t *testing.T) {
	each(t, 1, func(t *testing.T, b *bench) {
		d := b.devices[0]
		v, err := d.Virtual()
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		}
		ok(t, err)
		n := v.Round(1 << 20)
		r, err := v.Reserve(n, 0)
		closing(t, r, err)
		p, err := v.Create(n)
		closing(t, p, err)
		m, err := r.Map(0, n, p)
		closing(t, m, err)
		export(t, b, d, r.Addr()+4096, n-4096)
	})
}
