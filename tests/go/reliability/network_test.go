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

// apart is a pair on two hosts.
func apart(t *testing.T, blocks, deadlineMS int, env ...string) (*lab.Lab, *pair) {
	t.Helper()
	l := lab.New(t)
	a := startPeer(t, l.Host(), startArgs{Key: "a", DeadlineMS: deadlineMS, env: env})
	b := startPeer(t, l.Host(), startArgs{Key: "b", DeadlineMS: deadlineMS, env: env})
	return l, connect(t, a, b, blocks)
}

func TestAnUnreliableWireLosesNothing(t *testing.T) {
	for name, trouble := range map[string]struct {
		make     func(*lab.Lab)
		happened func(*lab.Lab) int64
		rounds   int
	}{
		"1 % loss":     {func(l *lab.Lab) { l.Loss(0.01) }, func(l *lab.Lab) int64 { return l.Dropped.Load() }, 12},
		"200 ms delay": {func(l *lab.Lab) { l.Delay(100 * time.Millisecond) }, func(l *lab.Lab) int64 { return l.Delayed.Load() }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, p := apart(t, 1024, 0)
			trouble.make(l)
			for range trouble.rounds {
				first, second := p.write(512), p.write(64)
				p.succeed(first)
				p.succeed(second)
				p.hasArrived(second)
			}
			p.verify()
			if n := trouble.happened(l); n == 0 {
				t.Error("the wire was in order all the time")
			} else {
				t.Logf("%d packets were hit, %d bytes checked", n, p.bytes)
			}
		})
	}
}

func TestACutLinkComesBack(t *testing.T) {
	t.Parallel()
	l, p := apart(t, 2048, 0)
	p.succeed(p.write(16))
	for range 3 {
		w := p.write(2048)
		time.Sleep(time.Duration(p.rng.IntN(10)) * time.Millisecond)
		l.Cut(true)
		behind := p.write(16)
		time.Sleep(700 * time.Millisecond)
		l.Cut(false)
		p.succeed(w)
		p.succeed(behind)
		p.hasArrived(behind)
	}
	p.verify()
	if l.Dropped.Load() == 0 {
		t.Error("nothing was cut")
	}
	t.Logf("%d packets dropped, %d bytes checked", l.Dropped.Load(), p.bytes)
}

// TestACutBeyondTheDeadline: the transfers fail in time and say why; afterwards everything works
// again.
func TestACutBeyondTheDeadline(t *testing.T) {
	l, p := apart(t, 1024, 1500)
	p.succeed(p.write(16))
	l.Cut(true)
	for range 2 {
		if o := p.ended(p.write(1024)); o.Code == int(mio.CodeSuccess) || !strings.Contains(o.Text, "deadline of 1500 ms") || !strings.Contains(o.Text, `"b"`) {
			t.Errorf("%d %q", o.Code, o.Text)
		}
	}
	l.Cut(false)
	p.recovers()
	p.verify()
}

// recovers waits until transfers succeed again.
func (p *pair) recovers() {
	p.t.Helper()
	for end := time.Now().Add(40 * time.Second); ; {
		o := p.ended(p.write(32))
		if o.Code == int(mio.CodeSuccess) {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("does not recover: %d %s", o.Code, o.Text)
		}
	}
}

func TestAPeerThatIsStopped(t *testing.T) {
	_, p := apart(t, 8192, 1000)
	p.succeed(p.write(16))
	p.b.signal(syscall.SIGSTOP)
	w := p.write(8192) // more than sockets hold
	if o := p.ended(w); o.Code == int(mio.CodeSuccess) || !strings.Contains(o.Text, "deadline of 1000 ms") {
		t.Errorf("%d %q", o.Code, o.Text)
	}
	p.b.signal(syscall.SIGCONT)
	p.recovers()
	p.verify()
}

// TestFlippedBits has a wire that changes bits in a way that TCP cannot see. With checksums every
// byte is right in the end.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	l, p := apart(t, 1024, 0, "MORI_IO_CHECKSUM=1")
	p.succeed(p.write(64))
	for range 40 {
		l.Flip(2) // fewer than a transfer survives: see maxAltered in io
		p.succeed(p.write(1024))
		l.Flip(1)
		if o := p.read(256); o.Code != int(mio.CodeSuccess) {
			t.Fatalf("a read failed: %d %s", o.Code, o.Text)
		}
	}
	l.Flip(0)
	last := p.write(64)
	p.succeed(last)
	p.hasArrived(last)
	p.verify()
	var d mio.EngineInfo
	p.a.ask("describe", nil, &d)
	if l.Flipped.Load() == 0 || d.Counters.Altered+d.Counters.Replays == 0 {
		t.Errorf("%d packets were altered, %+v", l.Flipped.Load(), d.Counters)
	}
	t.Logf("%d packets altered, %d ops sent again, %d replays, %d bytes checked", l.Flipped.Load(), d.Counters.Altered, d.Counters.Replays, p.bytes)
}

// TestAHostThatVanishes: nothing ends the connections of a host whose cable was pulled, but its
// silence.
func TestAHostThatVanishes(t *testing.T) {
	l, p := apart(t, 64, 0, "MORI_IO_LEASE_MS=900")
	p.succeed(p.write(16))
	var d mio.EngineInfo
	open := func() int {
		p.a.ask("describe", nil, &d)
		return len(d.Peers[0].Paths)
	}
	time.Sleep(2 * time.Second) // more than a lease, in which nothing is moved
	if open() != 1 || d.Counters.Replays != 0 {
		t.Fatalf("a peer that is alive and idle: %+v, %+v", d.Peers[0], d.Counters)
	}
	l.Cut(true)
	w := p.write(64)
	for end := time.Now().Add(20 * time.Second); open() != 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("silent for %d ms, and its connections are kept", d.Peers[0].SilentMS)
		}
	}
	l.Cut(false)
	p.succeed(w)
	p.verify()
	if open(); d.Counters.Replays == 0 {
		t.Errorf("%+v", d.Counters)
	}
}
