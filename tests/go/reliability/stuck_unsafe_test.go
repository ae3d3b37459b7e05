// SPDX-License-Identifier: MIT

package reliability

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	mio "mori/io"
)

// userfaultfd, linux/userfaultfd.h
const (
	uffdAPI          = 0xaa
	uffdAPICall      = 0xc018aa3f // UFFDIO_API
	uffdRegisterCall = 0xc020aa00 // UFFDIO_REGISTER
	uffdMissing      = 1
)

// stick takes the pages of a region away, and has whoever touches them wait for ever.
func (p *peerSide) stick(raw json.RawMessage) (any, error) {
	i, err := decode[int](raw)
	if err != nil {
		return nil, err
	}
	m := p.regions[i].mem
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return nil, fmt.Errorf("userfaultfd: %w", errno)
	}
	api := [3]uint64{uffdAPI}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdAPICall, uintptr(unsafe.Pointer(&api))); errno != 0 {
		return nil, fmt.Errorf("userfaultfd: %w", errno)
	}
	reg := [4]uint64{m.addr(), uint64(len(m)), uffdMissing}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdRegisterCall, uintptr(unsafe.Pointer(&reg))); errno != 0 {
		return nil, fmt.Errorf("userfaultfd: %w", errno)
	}
	return nil, errors.Join(unix.Madvise(m, unix.MADV_DONTNEED))
}

// TestTargetMemoryThatIsStuck: the pages of the target do not come. Transfers to them end by their deadline, others go on, neither process freezes, and
// the initiator closes.
func TestTargetMemoryThatIsStuck(t *testing.T) {
	eachTransport(t, func(t *testing.T, tcp bool) {
		for _, n := range []int{1, 512} { // 4 KiB, 2 MiB
			for _, read := range []bool{false, true} {
				a, b := startPeer(t, nil, startArgs{Key: "a", TCP: tcp, DeadlineMS: 1500}), startPeer(t, nil, startArgs{Key: "b", TCP: tcp})
				p := meet(t, a, b, 64)
				var remote []byte
				var stuck int
				b.ask("region", regionArgs{Blocks: 512}, &remote)
				a.ask("region", regionArgs{Blocks: 512, Seed: 5}, nil)
				a.ask("session", sessionArgs{Local: 2, Remote: remote}, &stuck)
				p.wants(p.run(stuck, n, read), mio.CodeSuccess, "")
				if err := b.try("stick", 1, nil); err != nil {
					t.Skip(err)
				}
				start := time.Now()
				bad := p.run(stuck, n, read)
				if took := time.Since(start); took > time.Second {
					t.Errorf("posting took %v", took)
				}
				var free leftovers
				b.ask("left", nil, &free) // it collects garbage, which waits for all of Go's threads
				a.ask("left", nil, &free)
				p.wants(bad, mio.CodeErrRDMAOp, "deadline")
				start = time.Now()
				a.ask("close", nil, nil)
				if took := time.Since(start); took > 10*time.Second {
					t.Errorf("close took %v", took)
				}
				a.kill()
				b.kill()
			}
		}
	})
}
