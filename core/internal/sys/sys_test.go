// SPDX-License-Identifier: MIT

package sys

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestBytesSeesTheSameMemory(t *testing.T) {
	b := []byte("hello, address")
	got := Bytes(AddrOf(b), len(b))
	got[0] = 'H'
	if string(b) != "Hello, address" {
		t.Fatalf("after writing through the address: %q", b)
	}
	if Bytes(0, 0) != nil {
		t.Fatal("no bytes at address 0 should be nil")
	}
	runtime.KeepAlive(b)
}

func TestWords(t *testing.T) {
	m, err := Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(m)
	a := AddrOf(m)
	Store32(a, 7)
	if old := Swap32(a, 9); old != 7 || Load32(a) != 9 {
		t.Fatalf("swap returned %d and left %d", old, Load32(a))
	}
	Store64(a+8, 1<<40)
	if Load64(a+8) != 1<<40 {
		t.Fatalf("got %d", Load64(a+8))
	}
}

func TestAdvance(t *testing.T) {
	tests := []struct {
		name string
		n    uint64
		want []Iovec
	}{
		{"nothing", 0, []Iovec{{100, 10}, {0, 0}, {200, 20}}},
		{"inside the first", 4, []Iovec{{104, 6}, {0, 0}, {200, 20}}},
		{"to the end of the first skips the empty one", 10, []Iovec{{200, 20}}},
		{"inside the last", 29, []Iovec{{219, 1}}},
		{"everything", 30, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Advance([]Iovec{{100, 10}, {0, 0}, {200, 20}}, tt.n)
			if len(got) != len(tt.want) {
				t.Fatalf("got %v, want %v", got, tt.want)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Fatalf("got %v, want %v", got, tt.want)
				}
			}
		})
	}
}

func iovecs(bufs ...[]byte) []Iovec {
	var iov []Iovec
	for _, b := range bufs {
		iov = append(iov, Iovec{AddrOf(b), uint64(len(b))})
	}
	return iov
}

func TestSendvRecvv(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	if n, err := Sendv(fds[0], iovecs([]byte("ab"), nil, []byte("cdef")), 0); n != 6 || err != nil {
		t.Fatalf("sent %d: %v", n, err)
	}
	x, y := make([]byte, 1), make([]byte, 9)
	if n, err := Recvv(fds[1], iovecs(x, y), 0); n != 6 || err != nil || string(x)+string(y[:5]) != "abcdef" {
		t.Fatalf("received %d bytes %q %q: %v", n, x, y, err)
	}
	unix.Close(fds[1])
	if _, err := Sendv(fds[0], iovecs([]byte("x")), 0); err != syscall.EPIPE {
		t.Fatalf("send to a closed peer: %v", err)
	}
}

func TestVMCopyIsExact(t *testing.T) {
	const n = 3 * 4096
	src, err := Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(src)
	dst, err := Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(dst)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	cut := func(b []byte, k int) (iov []Iovec) {
		for len(b) > 0 {
			c := min(k, len(b))
			iov = append(iov, iovecs(b[:c])...)
			b = b[c:]
		}
		return iov
	}
	for _, sizes := range [][2]int{{n, n}, {5, n}, {n, 5}, {3, 7}, {4096, 1000}} {
		for name, copy := range map[string]func(int, []Iovec, []Iovec) (int, error){"read": VMRead, "write": VMWrite} {
			clear(dst)
			local, remote := cut(dst, sizes[0]), cut(src, sizes[1])
			if name == "write" {
				local, remote = cut(src, sizes[0]), cut(dst, sizes[1])
			}
			if m, err := copy(os.Getpid(), local, remote); m != n || err != nil || !bytes.Equal(src, dst) {
				t.Fatalf("%s of %v: %d bytes, %v", name, sizes, m, err)
			}
		}
	}
}

func TestVMCopyStopsAtAHole(t *testing.T) {
	m, err := Alloc(4 * 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(m)
	if err := unix.Mprotect(m[2*4096:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, 4*4096)
	moved, err := VMRead(os.Getpid(), iovecs(dst), iovecs(m[:100], m[100:]))
	if moved != 2*4096 || err != syscall.EFAULT {
		t.Fatalf("moved %d, %v", moved, err)
	}
	if _, err := VMRead(1<<22+1, iovecs(dst), iovecs(m[:8])); err != syscall.ESRCH {
		t.Fatalf("from a process that is not there: %v", err)
	}
}

func TestMapSharedRefusesWhatCouldShrink(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := MapShared(fd, 4096); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("unsealed: %v", err)
	}
	if _, err := MapShared(fd, 8192); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("too short: %v", err)
	}
}

func TestMemfdIsShared(t *testing.T) {
	fd, err := Memfd("test", 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer CloseFD(fd)
	a, err := MapShared(fd, 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(a)
	b, err := MapShared(fd, 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(b)
	a[5000] = 42
	if b[5000] != 42 {
		t.Fatal("the second mapping does not see the first one's byte")
	}
	if err := unix.Ftruncate(fd, 0); err == nil {
		t.Fatal("the memfd could be shrunk")
	}
}

func TestFutex(t *testing.T) {
	m, err := Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(m)
	a := AddrOf(m)
	if err := FutexWait(a, 1, time.Second, false); err != syscall.EAGAIN {
		t.Fatalf("wait for another value: %v", err)
	}
	if err := FutexWait(a, 0, time.Millisecond, true); err != syscall.ETIMEDOUT {
		t.Fatalf("wait without a waker: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for Load32(a) == 0 {
			_ = FutexWait(a, 0, time.Second, false)
		}
	}()
	Store32(a, 1)
	if _, err := FutexWake(a, 1, false); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the waiter did not wake")
	}
}

func TestPidfdAndPeerCred(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := Pidfd(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer CloseFD(fd)
	if Readable(fd) {
		t.Fatal("a live process is readable")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !Readable(fd) {
		t.Fatal("a dead process is not readable")
	}
	if _, err := Pidfd(cmd.Process.Pid); !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("pidfd of a dead process: %v", err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if c, err := PeerCred(fds[0]); err != nil || c.PID != os.Getpid() || c.UID != uint32(os.Getuid()) {
		t.Fatalf("peer %+v: %v", c, err)
	}
}

func TestHungUp(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	if _, err := unix.Write(fds[1], []byte("x")); err != nil {
		t.Fatal(err)
	}
	if HungUp(fds[0]) || !Readable(fds[0]) {
		t.Fatal("waiting data taken for a hang-up")
	}
	unix.Close(fds[1])
	if !HungUp(fds[0]) {
		t.Fatal("a closed peer was not noticed")
	}
}

func TestRights(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if err := unix.Sendmsg(fds[0], []byte("x"), Rights(fds[0]), nil, 0); err != nil {
		t.Fatal(err)
	}
	oob := make([]byte, RightsLen)
	_, n, _, _, err := unix.Recvmsg(fds[1], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	got := ParseRights(oob[:n])
	if err != nil || len(got) != 1 {
		t.Fatalf("descriptors %v: %v", got, err)
	}
	CloseFD(got[0])
	if got := ParseRights([]byte("garbage of some length")); got != nil {
		t.Fatalf("garbage gave %v", got)
	}
}

func TestCopyStopsAtAHole(t *testing.T) {
	m, err := Alloc(3 * 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(m)
	for i := range m {
		m[i] = byte(i * 3)
	}
	dst := make([]byte, 4096)
	if n, err := Copy(iovecs(dst[:10], dst[10:]), iovecs(m[:4000], m[4000:4096])); n != 4096 || err != nil || !bytes.Equal(dst, m[:4096]) {
		t.Fatalf("copied %d: %v", n, err)
	}
	if err := unix.Mprotect(m[2*4096:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if n, err := Copy(iovecs(make([]byte, 3*4096)), iovecs(m[:4096], m[4096:])); n != 4096 || err != syscall.EFAULT {
		t.Fatalf("into a hole: %d, %v", n, err)
	}
	if n, err := Copy(iovecs(dst), []Iovec{{Addr: 16, Len: 8}}); n != 0 || err != syscall.EFAULT {
		t.Fatalf("from the first page: %d, %v", n, err)
	}
}

func TestGuard(t *testing.T) {
	hole, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(hole)
	if err := Guard(func() {}); err != nil {
		t.Error(err)
	}
	for _, at := range []uint64{AddrOf(hole), 16} {
		if err := Guard(func() { Store32(at, 7) }); err != syscall.EFAULT {
			t.Errorf("%#x: %v", at, err)
		}
	}
	defer func() {
		if r := recover(); r != "other" {
			t.Errorf("a panic became %v", r)
		}
	}()
	_ = Guard(func() { panic("other") })
}

func TestPtraceScope(t *testing.T) {
	scope, err := PtraceScope()
	if err != nil || scope < PtraceClassic || scope > PtraceNone {
		t.Fatalf("scope %d: %v", scope, err)
	}
	if err := AllowPtrace(); err != nil && !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	src, dst := make([]byte, 64), make([]byte, 64)
	local, remote := iovecs(dst), iovecs(src)
	pid := os.Getpid()
	if n := testing.AllocsPerRun(100, func() {
		_, _ = VMRead(pid, local, remote)
	}); n != 0 {
		t.Errorf("VMRead allocates %v", n)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if n := testing.AllocsPerRun(100, func() {
		_, _ = Sendv(fds[0], remote, 0)
		_, _ = Recvv(fds[1], local, 0)
	}); n != 0 {
		t.Errorf("Sendv and Recvv allocate %v", n)
	}
}
