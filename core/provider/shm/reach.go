// SPDX-License-Identifier: MIT

package shm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"

	"mori/core/internal/sys"
	"mori/core/internal/sys/sock"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/local"
	"mori/core/provider/shm/internal/ring"
)

// A way is how bytes of RMA ops move.
type way uint8

const (
	wayStream  way = iota // as payload on the socket
	wayCMA                // process_vm_readv and process_vm_writev
	wayMemmove            // the peer is in this process
)

var wayText = [...]string{wayStream: "stream", wayCMA: "cma", wayMemmove: "memmove"}

// A reach says how this side accesses the peer's memory, and why.
type reach struct {
	way    way
	pid    int
	reason string
}

// findReach checks the proof that the peer's hello announces: it is the right process, and its
// memory can be read and written.
func findReach(cred sock.Cred, h hello, opts *Options) reach {
	if opts.ForceStream {
		return reach{way: wayStream, reason: "payload on the socket was requested"}
	}
	if cred.PID == 0 {
		return reach{way: wayStream, reason: "the peer's process is not visible in this PID namespace"}
	}
	vm := opts.vm()
	got := make([]byte, len(h.proof))
	if n, err := vm.read(cred.PID, at(got), []sys.Iovec{{Addr: h.proofAddr, Len: uint64(len(got))}}); err != nil || n != len(got) {
		return reach{way: wayStream, reason: refusal("read", cred, err)}
	}
	if !bytes.Equal(got, h.proof[:]) {
		return reach{way: wayStream, reason: fmt.Sprintf("process %d created the socket, but another process uses it", cred.PID)}
	}
	if cred.PID == os.Getpid() && !opts.kernel {
		return reach{way: wayMemmove, pid: cred.PID, reason: "the peer is in this process"}
	}
	if n, err := vm.write(cred.PID, at(got), []sys.Iovec{{Addr: h.proofAddr - ring.Proof + ring.Trial, Len: uint64(len(got))}}); err != nil || n != len(got) {
		return reach{way: wayStream, reason: refusal("write", cred, err)}
	}
	return reach{way: wayCMA, pid: cred.PID, reason: fmt.Sprintf("process_vm_readv and process_vm_writev on process %d work", cred.PID)}
}

// openPages returns nil if this side may not see which pages of the peer are in memory.
func (r *reach) openPages(peer *local.Peer) *local.Pages {
	if r.way != wayCMA {
		return nil
	}
	pages := local.OpenPages(r.pid)
	if !peer.Dead() { // if dead, another process may have its pid
		return pages
	}
	pages.Close()
	return nil
}

func at(b []byte) []sys.Iovec { return []sys.Iovec{{Addr: sys.AddrOf(b), Len: uint64(len(b))}} }

// refusal explains what would have to change for the kernel to allow the access.
func refusal(act string, cred sock.Cred, err error) string {
	if err == nil {
		err = syscall.EFAULT
	}
	s := fmt.Sprintf("process_vm_%sv on process %d: %v", act, cred.PID, err)
	if !errors.Is(err, syscall.EPERM) {
		return s
	}
	if cred.UID != uint32(os.Getuid()) {
		return fmt.Sprintf("%s; it belongs to user %d, this one to user %d", s, cred.UID, os.Getuid())
	}
	switch scope, err := vm.PtraceScope(); {
	case err != nil:
		return s
	case scope == vm.PtraceRestricted:
		return s + "; kernel.yama.ptrace_scope is 1 and the peer did not allow it with PR_SET_PTRACER"
	case scope > vm.PtraceRestricted:
		return fmt.Sprintf("%s; kernel.yama.ptrace_scope is %d", s, scope)
	}
	return s + "; the peer may not be dumpable, or a seccomp filter or a container's capabilities forbid it"
}
