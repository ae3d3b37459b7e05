// SPDX-License-Identifier: MIT

package verbstest

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mori/native/verbs"
)

// gpuMemory is a mapped file as the emulated GPU's memory is one, with its address.
func (x *tester) gpuMemory(n int) (mem []byte, fd int) {
	x.Helper()
	fd, err := unix.MemfdCreate("mori-gpu-0-1", unix.MFD_CLOEXEC)
	x.ok(err)
	x.Cleanup(func() { x.ok(unix.Close(fd)) })
	x.ok(unix.Ftruncate(fd, int64(n)))
	mem, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	x.ok(err)
	x.Cleanup(func() { x.ok(unix.Munmap(mem)) })
	return mem, fd
}

// TestDMABuf: the device reaches what a dma-buf has and nothing beside it, and the descriptor may
// be closed.
func TestDMABuf(t *testing.T) {
	NeedEmulated(t)
	x := newTester(t, 0, 1, common)
	mem, file := x.gpuMemory(16 << 12)
	fd, err := unix.Dup(file) // shares its position, which says that the dma-buf has 4 pages from the third on
	x.ok(err)
	_, err = unix.Seek(fd, 2<<24|4, 0)
	x.ok(err)
	const iova, offset, n = 7<<12 + 100, 1<<12 + 100, 2 << 12
	for what, bad := range map[string]struct{ offset, length, iova uint64 }{
		"past its end":          {offset, 3 << 12, iova},
		"nothing":               {offset, 0, iova},
		"far past its end":      {offset, ^uint64(0) - 50, iova},
		"at another place in a": {offset, n, iova + 1},
	} {
		if _, _, err := x.b.pd.RegDmabuf(bad.offset, bad.length, bad.iova, fd, allow); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s page: %v", what, err)
		}
	}
	mr, keys, err := x.b.pd.RegDmabuf(offset, n, iova, fd, allow)
	x.ok(err)
	x.ok(unix.Close(fd))
	if got := Most(t, "dmabuf"); got != n {
		t.Errorf("a region of %d bytes is told, not of %d", got, n)
	}
	for i := range n {
		x.a.buf[i] = byte(i%251 + 1)
	}
	x.ok(x.a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: iova, RKey: keys.Remote}, x.a.sge(0, n)))
	x.ends(x.a.send, verbs.StatusSuccess)
	const at = 3<<12 + 100
	if !bytes.Equal(mem[at:at+n], x.a.buf[:n]) || mem[at-1] != 0 || mem[at+n] != 0 {
		t.Error("the bytes are elsewhere")
	}
	x.ok(x.a.post(verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signaled, RemoteAddr: iova + 1, RKey: keys.Remote}, x.a.sge(0, n)))
	x.ends(x.a.send, verbs.StatusRemAccess)
	x.ok(mr.Close())
}

// TestPeerMemory: an address of a GPU's memory is taken where there is a module for it.
func TestPeerMemory(t *testing.T) {
	NeedEmulated(t)
	x := newTester(t, 0, 1, common)
	mem, _ := x.gpuMemory(1 << 12)
	at := addrOf(mem)
	if _, _, err := x.a.pd.RegMR(at, 1<<12, at, allow); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("without a module: %v", err)
	}
	PeerMemory(t)
	mr, _, err := x.a.pd.RegMR(at, 1<<12, at, allow)
	x.ok(err)
	x.ok(mr.Close())
}
