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

// stick removes the pages of a region, and makes every access to them wait without end.
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

// TestTargetMemoryThatIsStuck: the pages of the target do not come. Transfers to them end by their
// deadline, others go on, neither process freezes, and the initiator closes.
func TestTargetMemoryThatIsStuck(t *testing.T) {
	eachTransport(t, func(t *testing.T, tcp bool) {
		for _, n := range []int{1, 512} { // 4 KiB, 2 MiB
			for _, read := range []bool{false, true} {
				p, stuck := withSecondRegion(t, tcp, n, read)
				a, b := p.a, p.b
				if err := b.try("stick", 1, nil); err != nil {
					t.Skip(err)
				}
				start := time.Now()
				bad := p.run(stuck, n, read)
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("posting took %v", took)
				}
				var free leftovers
				b.ask("left", nil, &free) // it collects garbage, which waits for all of Go's threads
				a.ask("left", nil, &free)
				p.wants(bad, mio.CodeErrRDMAOp, "deadline")
				if n > 1 && !read {
					closes(t, a, b) // that of b takes 5 s, which a region waits for its peers
					continue
				}
				closes(t, a)
				b.kill()
			}
		}
	})
}

// withSecondRegion starts two peers with a second region of 512 blocks each, and moves n blocks
// between these once. It returns the session of the second regions, whose memory a test may stick.
func withSecondRegion(t *testing.T, tcp bool, n int, read bool) (p *pair, session int) {
	t.Helper()
	a, b := startPeer(t, nil, startArgs{Key: "a", TCP: tcp, DeadlineMS: 500}), startPeer(t, nil, startArgs{Key: "b", TCP: tcp})
	p = connect(t, a, b, 64)
	var remote []byte
	b.ask("region", regionArgs{Blocks: 512}, &remote)
	a.ask("region", regionArgs{Blocks: 512, Seed: 5}, nil)
	a.ask("session", sessionArgs{Local: 2, Remote: remote}, &session)
	p.wants(p.run(session, n, read), mio.CodeSuccess, "")
	return p, session
}

// closes has engines closed, which is bounded although a page does not come, and ends their
// processes.
func closes(t *testing.T, sides ...*peer) {
	t.Helper()
	for _, side := range sides {
		start := time.Now()
		side.ask("close", nil, nil)
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("close of %s took %v", side.key, took)
		}
	}
	for _, side := range sides {
		side.kill()
	}
}

// TestLocalMemoryThatIsStuck: the pages of the initiator's buffer do not come. To post does not
// wait, transfers end by Cancel or their deadline, the collector runs, others go on, and both sides
// close.
func TestLocalMemoryThatIsStuck(t *testing.T) {
	eachTransport(t, func(t *testing.T, tcp bool) {
		for _, n := range []int{1, 512} { // 4 KiB, 2 MiB
			for _, read := range []bool{false, true} {
				p, stuck := withSecondRegion(t, tcp, n, read)
				a, b := p.a, p.b
				if err := a.try("stick", 2, nil); err != nil {
					t.Skip(err)
				}
				start := time.Now()
				bad, canceled := p.run(stuck, n, read), p.run(stuck, n, read)
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("posting took %v", took)
				}
				var free leftovers
				a.ask("left", nil, &free)
				start = time.Now()
				_ = a.try("cancel", canceled, nil) // it may say that the peer did not confirm
				if took := time.Since(start); took > 20*time.Second {
					t.Errorf("cancel took %v", took)
				}
				p.outcome(canceled)
				p.wants(bad, mio.CodeErrRDMAOp, "deadline")
				closes(t, a)
				b.kill()
			}
		}
	})
}
