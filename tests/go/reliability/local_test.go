// SPDX-License-Identifier: MIT

package reliability

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	mio "mori/io"
)

// together is a pair on this host.
func together(t *testing.T, blocks int, tcp bool) *pair {
	t.Helper()
	a, b := startPeer(t, nil, startArgs{Key: "a", TCP: tcp}), startPeer(t, nil, startArgs{Key: "b", TCP: tcp})
	return connect(t, a, b, blocks)
}

// TestSharedMemoryIsRefusedInMidRun: a filter that comes down on process_vm_writev moves everything
// to another path.
func TestSharedMemoryIsRefusedInMidRun(t *testing.T) {
	t.Parallel()
	p := together(t, 4096, false)
	p.succeed(p.write(64))
	first := p.write(4096)
	p.a.ask("seccomp", nil, nil)
	second := p.write(4096)
	p.succeed(first)
	p.succeed(second)
	p.hasArrived(second)
	for range 5 {
		p.succeed(p.write(512))
	}
	p.verify()
	var d mio.EngineInfo
	p.a.ask("describe", nil, &d)
	if d.Counters.Replays == 0 || d.Counters.Failed != 0 || strings.Contains(fmt.Sprint(d.Peers[0].Paths), "cma") && !strings.Contains(fmt.Sprint(d.Peers[0].Paths), "stream") {
		t.Errorf("%+v over %+v", d.Counters, d.Peers[0].Paths)
	}
	t.Logf("%d replays, now over %+v", d.Counters.Replays, d.Peers[0].Paths)
}

// TestKillsAtRandomMoments kills one side while transfers are under way. The other one survives,
// learns of it, and works with the next.
func TestKillsAtRandomMoments(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		t.Run(map[bool]string{false: "shm", true: "tcp"}[tcp], func(t *testing.T) {
			t.Parallel()
			p := together(t, 2048, tcp)
			for round := range 10 {
				first, second := p.write(2048), p.write(512)
				time.Sleep(time.Duration(p.rng.IntN(3000)) * time.Microsecond)
				if round%2 == 0 { // the target dies
					p.b.kill()
					for _, w := range []postArgs{first, second} {
						if o := p.ended(w); o.Code != int(mio.CodeSuccess) && !strings.Contains(o.Text, `"b"`) {
							t.Errorf("%d %q", o.Code, o.Text)
						}
					}
					p.b = startPeer(t, nil, startArgs{Key: "b", TCP: tcp})
					p.b.ask("know", p.a.desc, nil)
					if err := p.a.try("session", sessionArgs{Local: 0, Remote: p.remote}, nil); err == nil {
						t.Error("a session with a region of a dead process")
					}
					p.a.ask("know", p.b.desc, nil)
				} else { // the initiator dies
					p.a.kill()
					for _, w := range []postArgs{first, second} {
						p.book(w, outcome{Code: int(mio.CodeErrBadState)})
					}
					p.settled()
					p.hold(p.b, p.regions()-1, p.may)
					p.a = startPeer(t, nil, startArgs{Key: "a", TCP: tcp})
					p.source()
					p.a.ask("know", p.b.desc, nil)
					p.b.ask("know", p.a.desc, nil)
				}
				p.target()
				p.succeed(p.write(1024))
				p.verify()
			}
			t.Logf("10 kills, %d bytes checked", p.bytes)
		})
	}
}

// settled waits until b has nothing of the dead peer any more.
func (p *pair) settled() {
	p.t.Helper()
	var before, now leftovers
	p.b.ask("left", nil, &before)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); before = now {
		time.Sleep(50 * time.Millisecond)
		p.b.ask("left", nil, &now)
		if now.Goroutines == before.Goroutines && now.Descriptors == before.Descriptors {
			return
		}
	}
	p.t.Fatalf("b does not settle: %+v", now)
}

// TestNothingIsLeftAfterClose compares a process before its engine and after, with much trouble in
// between.
func TestNothingIsLeftAfterClose(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		t.Run(map[bool]string{false: "shm", true: "tcp"}[tcp], func(t *testing.T) {
			t.Parallel()
			p := together(t, 512, tcp)
			for range 5 {
				w := p.write(512)
				p.a.ask("cancel", w.UID, nil)
				p.ended(w)
				p.succeed(p.write(64))
				p.b.kill()
				p.ended(p.write(64))
				p.b = startPeer(t, nil, startArgs{Key: "b", TCP: tcp})
				p.a.ask("know", p.b.desc, nil)
				p.b.ask("know", p.a.desc, nil)
				p.target()
			}
			p.succeed(p.write(64))
			p.a.ask("close", nil, nil)
			p.b.ask("close", nil, nil)
			for _, side := range []*peer{p.a, p.b} {
				var now leftovers
				for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
					side.ask("left", nil, &now)
					if now.Goroutines <= 4 && now.Descriptors <= 4 && len(now.Shared) == 0 && now.Heap < 4<<20 {
						break
					}
					if time.Now().After(end) {
						side.signal(syscall.SIGQUIT)
						t.Fatalf("%s has %+v after close", side.key, now)
					}
				}
			}
		})
	}
}
