// SPDX-License-Identifier: MIT

package bootstrap

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"mori/core/internal/sys"
)

// The connections of a process that dies end, unless somebody has inherited them: a child that was forked without exec, as Python's
// multiprocessing does. So rank 0 and the ranks of its host also watch each other's processes.

// An identity says which process of which host a rank is.
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

// self is this process. What is sent of the host tells nothing to who does not know it.
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

// What a process sent before it ended may be read for so long.
const orphanGrace = 200 * time.Millisecond

// watch takes the end of the peer's process for the end of l, if the peer is another process of this host and the kernel lets us see it. It must
// be called before serve, which ends it.
func (m *member) watch(l *link, peer identity) {
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
			return // the link has ended first
		}
		time.Sleep(orphanGrace)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.ended(l, errEnded)
	}()
}
