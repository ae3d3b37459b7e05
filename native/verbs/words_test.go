// SPDX-License-Identifier: MIT

package verbs

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// GIDsOneByOne is what a library without ibv_query_gid_table would say.
func GIDsOneByOne(tb testing.TB, c Context, port int) []GIDEntry {
	tb.Helper()
	all, err := c.gidsOneByOne(port)
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

func TestSpeed(t *testing.T) {
	for _, c := range []struct {
		code, width uint8
		want        float64
	}{{1, 1, 2.5}, {4, 2, 40}, {32, 2, 100}, {128, 2, 400}, {64, 16, 100}, {0, 2, 0}, {3, 2, 0}, {128, 3, 0}} {
		if got := speed(c.code, c.width); got != c.want {
			t.Errorf("speed %d, width %d: %v Gbit/s, want %v", c.code, c.width, got, c.want)
		}
	}
}

func TestGIDType(t *testing.T) {
	for _, c := range []struct {
		word string
		link LinkLayer
		want GIDType
	}{{"RoCE v2", LinkEthernet, GIDRoCEv2}, {"IB/RoCE v1", LinkEthernet, GIDRoCEv1}, {"IB/RoCE v1", LinkInfiniBand, GIDIB}, {"", LinkInfiniBand, GIDIB}, {"", LinkEthernet, GIDRoCEv1}} {
		if got := gidType(c.word, c.link); got != c.want {
			t.Errorf("%q on %v is %v, want %v", c.word, c.link, got, c.want)
		}
	}
}

// TestTexts: each word has a text, and a number that is none says so.
func TestTexts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{StatusSuccess.String(), "success"},
		{StatusRemAccess.String(), "remote access error"},
		{StatusTMRendezvous.String(), "tag matching rendezvous incomplete"},
		{Status(24).String(), "status 24"},
		{StateErr.String(), "ERR"},
		{State(9).String(), "state 9"},
		{TransportUnknown.String(), "unknown"},
		{TransportIWARP.String(), "iWARP"},
		{TransportUnspecified.String(), "unspecified"},
		{NodeCA.String(), "CA"},
		{NodeRNIC.String(), "RNIC"},
		{NodeType(0).String(), "node type 0"},
		{PortActive.String(), "active"},
		{PhysState(5).String(), "link up"},
		{LinkEthernet.String(), "Ethernet"},
		{GIDRoCEv2.String(), "RoCE v2"},
		{AtomicHCA.String(), "within the device"},
		{EventPortErr.String(), "port error"},
		{EventWQFatal.String(), "work queue fatal error"},
		{EventKind(20).String(), "event 20"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// TestLockedMemory: where memory cannot be registered the error has the limit.
func TestLockedMemory(t *testing.T) {
	var was syscall.Rlimit
	if err := syscall.Getrlimit(rlimitMemlock, &was); err != nil {
		t.Fatal(err)
	}
	limit := was
	limit.Cur = min(was.Cur, 64<<10)
	if err := syscall.Setrlimit(rlimitMemlock, &limit); err != nil {
		t.Fatal(err)
	}
	err := explain(check(12, "register %d bytes", 5))
	if err2 := syscall.Setrlimit(rlimitMemlock, &was); err2 != nil {
		t.Error(err2)
	}
	if !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "register 5 bytes: cannot allocate memory: this process may lock ") {
		t.Error(err)
	}
	if err := explain(syscall.EFAULT); !errors.Is(err, syscall.EFAULT) || strings.Contains(err.Error(), "lock") {
		t.Error(err)
	}
}
