// SPDX-License-Identifier: MIT

package lab

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Lab is a switch with hosts.
type Lab struct {
	tb    testing.TB
	name  string
	mu    sync.Mutex
	hosts map[[4]byte]*Host
	wg    sync.WaitGroup

	cut   atomic.Bool
	delay atomic.Int64                         // ns
	loss  atomic.Uint64                        // probability that a packet is dropped, in 2^-32
	flip  atomic.Int64                         // packets still to be altered
	rate  atomic.Int64                         // bytes/s to each host, 0 if any
	watch func(contents []byte) (altered bool) // of TCP packets; guarded by mu

	Passed, Dropped, Delayed, Flipped atomic.Int64 // packets
	Bytes                             atomic.Int64 // of packets that passed
}

// A Host is a network namespace with one address.
type Host struct {
	Addr string // IPv4, without a port

	lab *Lab
	ns  string
	ip  [4]byte
	tun *os.File
	out chan packet

	idle time.Time // when the wire to it has carried what was sent; guarded by Lab.mu
}

type packet struct {
	due   time.Time
	bytes []byte
}

var labs, probes atomic.Int64

// Need skips a test where there are no network namespaces, or fails it if MORI_REQUIRE has netns.
func Need(tb testing.TB) {
	tb.Helper()
	if why := missing(); why != "" {
		if strings.Contains(os.Getenv("MORI_REQUIRE"), "netns") {
			tb.Fatal(why)
		}
		tb.Skip(why)
	}
}

// New makes a switch without hosts, as Need allows. Everything goes when the test ends.
func New(tb testing.TB) *Lab {
	tb.Helper()
	Need(tb)
	return &Lab{tb: tb, name: fmt.Sprintf("mori%d-%d", os.Getpid(), labs.Add(1)), hosts: map[[4]byte]*Host{}}
}

// missing says what stands in the way of namespaces, "" if nothing does.
func missing() string {
	if _, err := exec.LookPath("ip"); err != nil {
		return "no network namespaces: the program ip (package iproute2) is not installed"
	}
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return fmt.Sprintf("no TUN devices: %v", err)
	}
	_ = f.Close()
	probe := fmt.Sprintf("mori%d-probe%d", os.Getpid(), probes.Add(1))
	if out, err := exec.Command("ip", "netns", "add", probe).CombinedOutput(); err != nil {
		return fmt.Sprintf("no network namespaces: %s", strings.TrimSpace(string(out)))
	}
	_ = exec.Command("ip", "netns", "del", probe).Run()
	return ""
}

// Host adds a host.
func (l *Lab) Host() *Host {
	l.tb.Helper()
	l.mu.Lock()
	n := byte(len(l.hosts) + 1)
	l.mu.Unlock()
	h := &Host{lab: l, ip: [4]byte{10, 77, 0, n}, Addr: fmt.Sprintf("10.77.0.%d", n), ns: fmt.Sprintf("%s-%d", l.name, n), out: make(chan packet, 4096)}
	l.run("ip", "netns", "add", h.ns)
	l.tb.Cleanup(func() { _ = exec.Command("ip", "netns", "del", h.ns).Run() })
	tun, err := openTUN(h.ns, "wire")
	if err != nil {
		l.tb.Fatal(err)
	}
	h.tun = tun
	h.ip4("addr", "add", h.Addr+"/24", "dev", "wire")
	h.ip4("link", "set", "wire", "up", "mtu", "9000")
	h.ip4("link", "set", "lo", "up")
	l.mu.Lock()
	l.hosts[h.ip] = h
	l.mu.Unlock()
	l.wg.Add(2)
	go h.read()
	go h.write()
	l.tb.Cleanup(func() {
		_ = tun.Close()
		l.mu.Lock()
		delete(l.hosts, h.ip)
		l.mu.Unlock()
		close(h.out)
	})
	return h
}

func (l *Lab) run(name string, args ...string) {
	l.tb.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		l.tb.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

func (h *Host) ip4(args ...string) {
	h.lab.tb.Helper()
	h.lab.run("ip", append([]string{"-n", h.ns}, args...)...)
}

// Command is a program that runs on the host.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", h.ns, name}, args...)...)
}

// Cut stops or passes all packets.
func (l *Lab) Cut(cut bool) { l.cut.Store(cut) }

// Delay holds each packet for so long, on every way.
func (l *Lab) Delay(d time.Duration) { l.delay.Store(int64(d)) }

// Rate makes the wire to each host carry so many bytes in a second; 0 is as many as there are.
func (l *Lab) Rate(bytesPerSecond int64) { l.rate.Store(bytesPerSecond) }

// Loss drops this share of the packets.
func (l *Lab) Loss(p float64) { l.loss.Store(uint64(p * (1 << 32))) }

// Flip changes one bit in each of the next n packets that have contents, in a way that TCP does not
// notice. It replaces the count of an earlier call. How many packets a stream has depends on the
// load of the machine, so a share of them would be another number in each run.
func (l *Lab) Flip(n int64) { l.flip.Store(n) }

// Watch calls see with the contents of each TCP packet, which see may change in place if it then
// returns true. It replaces the function of an earlier call; nil is none. Afterwards the earlier
// one is not called any more.
func (l *Lab) Watch(see func(contents []byte) (altered bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch = see
}

// read takes packets from the host to where they go.
func (h *Host) read() {
	defer h.lab.wg.Done()
	buf := make([]byte, 1<<16)
	for {
		n, err := h.tun.Read(buf)
		if err != nil {
			return
		}
		h.lab.forward(buf[:n])
	}
}

func (l *Lab) forward(b []byte) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.hosts[[4]byte(b[16:20])]
	switch {
	case to == nil:
		return
	case l.cut.Load(), uint64(rand.Uint32()) < l.loss.Load():
		l.Dropped.Add(1)
		return
	}
	p := packet{bytes: append([]byte(nil), b...)}
	if r := l.rate.Load(); r > 0 {
		if p.due = to.carry(len(b), r); time.Until(p.due) > maxQueue {
			l.Dropped.Add(1)
			return
		}
		to.idle = p.due
	}
	if d := l.delay.Load(); d > 0 {
		p.due = later(p.due, time.Now()).Add(time.Duration(d))
	}
	if !p.due.IsZero() {
		l.Delayed.Add(1)
	}
	if b := contents(p.bytes); l.watch != nil && len(b) > 0 && l.watch(b) {
		mendChecksum(p.bytes)
		l.Flipped.Add(1)
	}
	if l.flip.Load() > 0 && flipBit(p.bytes) {
		l.flip.Add(-1)
		l.Flipped.Add(1)
	}
	select {
	case to.out <- p:
		l.Passed.Add(1)
		l.Bytes.Add(int64(len(b)))
	default:
		l.Dropped.Add(1) // a full queue, as in any switch
	}
}

// maxQueue is how long a packet waits at most for a wire with a rate.
const maxQueue = 100 * time.Millisecond

// carry is when n more bytes will have been carried.
func (h *Host) carry(n int, rate int64) time.Time {
	return later(h.idle, time.Now()).Add(time.Duration(int64(n) * int64(time.Second) / rate))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// write hands packets to the host when they are due.
func (h *Host) write() {
	defer h.lab.wg.Done()
	for p := range h.out {
		time.Sleep(time.Until(p.due))
		if _, err := h.tun.Write(p.bytes); err != nil {
			continue // the host is going, or the packet is none
		}
	}
}
