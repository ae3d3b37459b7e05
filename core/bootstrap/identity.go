// SPDX-License-Identifier: MIT

package bootstrap

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"mori/core/internal/sys"
)

// The connections of a process that dies end, unless a child inherited them: a child forked without
// exec, as Python's multiprocessing creates. So rank 0 and the ranks of its host also watch each
// other's processes.

// An identity identifies the process and the host of a rank.
type identity struct {
	host [16]byte // of the running system and the name space of its process ids; zero: unknown
	pid  uint32
}

const identitySize = 16 + 4

func (i identity) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(append(b, i.host[:]...), i.pid)
}

// parseIdentity reads identitySize bytes.
func parseIdentity(b []byte) identity {
	return identity{host: [16]byte(b), pid: binary.LittleEndian.Uint32(b[16:])}
}

// self is this process. Its host is a hash, which only processes of that host can compute.
func self() identity {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	pids, e := os.Readlink("/proc/self/ns/pid")
	if err != nil || e != nil {
		return identity{}
	}
	host := prove([secretSize]byte{}, "host", boot, []byte(pids))
	return identity{host: [16]byte(host[:16]), pid: uint32(os.Getpid())}
}

var errEnded = errors.New("its process has ended")

// orphanGrace is how long frames that a process sent before its end may still be read.
const orphanGrace = 200 * time.Millisecond

// watch calls lost when the peer's process ends, if that is another process of this host and the
// kernel lets us see it. It must be called before the link's reader starts, which ends the watch.
func (l *link) watch(peer identity, lost func(*link, error)) {
	own := self()
	if own.host == [16]byte{} || peer.host != own.host || peer.pid == own.pid || peer.pid == 0 {
		return
	}
	fd, err := sys.Pidfd(int(peer.pid))
	if err != nil {
		return
	}
	l.process = os.NewFile(uintptr(fd), "pidfd")
	raw, err := l.process.SyscallConn()
	if err != nil {
		return
	}
	go func() {
		if raw.Read(func(fd uintptr) bool { return sys.Readable(int(fd)) }) != nil {
			return // the link ended first
		}
		time.Sleep(orphanGrace)
		lost(l, errEnded)
	}()
}
