// SPDX-License-Identifier: MIT

package sock

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mori/core/internal/sys"
)

func iovecs(bufs ...[]byte) []sys.Iovec {
	var iov []sys.Iovec
	for _, b := range bufs {
		iov = append(iov, sys.Iovec{Addr: sys.AddrOf(b), Len: uint64(len(b))})
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

func TestPeerCred(t *testing.T) {
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
	if HungUp(fds[0]) || !sys.Readable(fds[0]) {
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
	sys.CloseFD(got[0])
	if got := ParseRights([]byte("garbage of some length")); got != nil {
		t.Fatalf("garbage gave %v", got)
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	local, remote := iovecs(make([]byte, 64)), iovecs(make([]byte, 64))
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
