// SPDX-License-Identifier: MIT

package reliability

import (
	"strings"
	"syscall"
	"testing"
	"time"

	mio "mori/io"
	"mori/tests/go/lab"
)

// replaceInitiator starts a successor of a, on host if that is not nil, makes it known to b, and
// opens the same region of b to it. It returns the predecessor.
func (p *pair) replaceInitiator(host *lab.Host, tcp bool) (old *peer) {
	p.t.Helper()
	old = p.a
	p.a = startPeer(p.t, host, startArgs{Key: "a", TCP: tcp})
	p.source()
	p.a.ask("know", p.b.desc, nil)
	start := time.Now()
	p.b.ask("know", p.a.desc, nil)
	if took := time.Since(start); took > 20*time.Second {
		p.t.Errorf("to register the successor took %v", took)
	}
	p.a.ask("session", sessionArgs{Local: 0, Remote: p.remote}, &p.session)
	return old
}

// overwrite writes all blocks with one transfer, and the memory may hold nothing else then.
func (p *pair) overwrite() {
	p.t.Helper()
	clear(p.open)
	w := p.write(p.blocks)
	p.succeed(w)
	for i, r := range w.Remote {
		p.may[r] = []int{w.Local[i]}
	}
}

// TestAFrozenPredecessorWritesNothing: an engine is frozen in mid-write, replaced, and continued.
// Nothing of it lands behind the bytes of its successor, and its transfer fails.
func TestAFrozenPredecessorWritesNothing(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		t.Run(map[bool]string{false: "shm", true: "tcp"}[tcp], func(t *testing.T) {
			p := together(t, 16384, tcp)
			p.succeed(p.write(16))
			w := p.write(p.blocks)
			p.a.signal(syscall.SIGSTOP)
			old := p.replaceInitiator(nil, tcp)
			p.overwrite()
			old.signal(syscall.SIGCONT)
			var o outcome
			old.ask("wait", w.UID, &o)
			p.hold(p.b, 0, p.may)
			if o.Code == int(mio.CodeSuccess) {
				t.Skip("the write had ended before its engine was frozen")
			}
			if !strings.Contains(o.Text, "replaced") {
				t.Errorf("the predecessor's write: %d %q", o.Code, o.Text)
			}
			if err := old.try("session", sessionArgs{Local: 0, Remote: p.remote}, nil); err == nil {
				t.Error("the predecessor opens a session")
			}
			p.overwrite()
			p.hold(p.b, 0, p.may)
		})
	}
}

// TestLateBytesOfAPredecessor: an engine dies while its bytes wait on a slow wire. Its successor is
// on b's own host.
func TestLateBytesOfAPredecessor(t *testing.T) {
	l := lab.New(t)
	first, second := l.Host(), l.Host()
	a := startPeer(t, first, startArgs{Key: "a", TCP: true})
	b := startPeer(t, second, startArgs{Key: "b", TCP: true})
	p := connect(t, a, b, 1024)
	p.succeed(p.write(16))
	l.Rate(1 << 20)
	p.write(p.blocks)
	time.Sleep(300 * time.Millisecond)
	p.a.kill() // the kernel continues with what its sockets hold
	p.replaceInitiator(second, true)
	p.overwrite()
	time.Sleep(3 * time.Second)
	p.hold(p.b, 0, p.may)
}
