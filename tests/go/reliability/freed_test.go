// SPDX-License-Identifier: MIT

package reliability

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	mio "mori/io"
)

// free takes the memory of a region away, which stays registered.
func (p *peerSide) free(raw json.RawMessage) (any, error) {
	i, err := decode[int](raw)
	if err != nil {
		return nil, err
	}
	r := &p.regions[i]
	return nil, r.mem.free()
}

// remap maps zeros where the memory of a region was.
func (p *peerSide) remap(raw json.RawMessage) (any, error) {
	i, err := decode[int](raw)
	if err != nil {
		return nil, err
	}
	r := &p.regions[i]
	r.mem, err = mapAt(r.desc.Data, int(r.desc.Size))
	return nil, err
}

// untouched fails if a region holds anything but zeros.
func (p *peerSide) untouched(raw json.RawMessage) (any, error) {
	i, err := decode[int](raw)
	if err != nil {
		return nil, err
	}
	for at, b := range p.regions[i].mem {
		if b != 0 {
			return nil, fmt.Errorf("byte %d of region %d was written", at, i)
		}
	}
	return nil, nil
}

// eachTransport runs f over shared memory and over TCP.
func eachTransport(t *testing.T, f func(t *testing.T, tcp bool)) {
	for _, tcp := range []bool{false, true} {
		t.Run(map[bool]string{false: "shm", true: "tcp"}[tcp], func(t *testing.T) {
			t.Parallel()
			f(t, tcp)
		})
	}
}

// run posts blocks 0 to n-1 of a session, both sides.
func (p *pair) run(session, n int, read bool) (uid uint64) {
	p.t.Helper()
	p.uid++
	a := postArgs{Session: session, Read: read, UID: p.uid}
	for i := range n {
		a.Local, a.Remote = append(a.Local, i), append(a.Remote, i)
	}
	p.a.ask("post", a, nil)
	return p.uid
}

// outcome waits for a transfer of run, which has to end soon.
func (p *pair) outcome(uid uint64) (o outcome) {
	p.t.Helper()
	start := time.Now()
	p.a.ask("wait", uid, &o)
	if took := time.Since(start); took > 10*time.Second {
		p.t.Errorf("transfer %d took %v: %v", uid, took, o)
	}
	return o
}

func (p *pair) wants(uid uint64, code mio.StatusCode, text string) {
	p.t.Helper()
	if o := p.outcome(uid); o.Code != int(code) || !strings.Contains(o.Text, text) {
		p.t.Errorf("transfer %d: %v %q, want %v with %q", uid, mio.StatusCode(o.Code), o.Text, code, text)
	}
}

func (p *pair) counters() mio.Counters {
	p.t.Helper()
	var d mio.EngineInfo
	p.a.ask("describe", nil, &d)
	return d.Counters
}

// TestMemoryThatThePeerHasFreed fails each read and write of it at once, with a code of its own.
// Nothing is replayed, so nothing is written to what is mapped there later, and the next transfer
// uses the same connection.
func TestMemoryThatThePeerHasFreed(t *testing.T) {
	eachTransport(t, func(t *testing.T, tcp bool) {
		p := together(t, 64, tcp)
		p.succeed(p.write(64))
		var remote []byte
		var gone int
		p.b.ask("region", regionArgs{Blocks: 512}, &remote)
		p.a.ask("region", regionArgs{Blocks: 512, Seed: 5}, nil)
		p.a.ask("session", sessionArgs{Local: 2, Remote: remote}, &gone)
		p.wants(p.run(gone, 16, false), mio.CodeSuccess, "")
		p.b.ask("free", 1, nil)
		for _, n := range []int{1, 16, 512} { // 4 KiB, 64 KiB, 2 MiB
			for _, read := range []bool{false, true} {
				bad := p.run(gone, n, read)
				good := p.write(16)
				p.wants(bad, mio.CodeErrBadAddress, "mapped")
				p.succeed(good)
			}
		}
		last := p.run(gone, 16, false)
		p.b.ask("remap", 1, nil)
		p.outcome(last)
		p.b.ask("remap", 1, nil)
		time.Sleep(300 * time.Millisecond)
		p.b.ask("untouched", 1, nil)
		p.hold(p.b, 0, p.may)
		if c := p.counters(); c.Replays != 0 {
			t.Errorf("%d replays", c.Replays)
		}
	})
}

// TestLocalMemoryThatWasFreed fails the transfer that needs it, and no other one.
func TestLocalMemoryThatWasFreed(t *testing.T) {
	eachTransport(t, func(t *testing.T, tcp bool) {
		p := together(t, 256, tcp)
		p.succeed(p.write(64))
		var gone int
		p.a.ask("region", regionArgs{Blocks: 512, Seed: 5}, nil)
		var remote []byte
		p.b.ask("region", regionArgs{Blocks: 512}, &remote)
		p.a.ask("session", sessionArgs{Local: 2, Remote: remote}, &gone)
		p.wants(p.run(gone, 512, false), mio.CodeSuccess, "")
		p.a.ask("free", 2, nil)
		for _, n := range []int{1, 16, 512} {
			for _, read := range []bool{false, true} {
				var good []postArgs
				for range 32 {
					good = append(good, p.write(16))
				}
				bad := p.run(gone, n, read)
				for range 32 {
					good = append(good, p.write(16))
				}
				p.wants(bad, mio.CodeErrBadAddress, "local buffer")
				for _, w := range good {
					p.succeed(w)
				}
			}
		}
		p.hold(p.b, 0, p.may)
		t.Logf("%d replays", p.counters().Replays)
	})
}
