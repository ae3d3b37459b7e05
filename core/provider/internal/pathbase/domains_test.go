// SPDX-License-Identifier: MIT

package pathbase

import (
	"errors"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/grant"
)

// A fleet is the domains of a fabric. A D is a sequence number.
type fleet struct {
	Domains[int]
	made, closed int
	dropped      []uint64
	closing      chan struct{} // if set, Close waits for it
}

func newFleet() *fleet {
	f := &fleet{}
	f.Within = time.Minute
	f.Open = func(*conn.Domain) int { f.made++; return f.made }
	f.Drop = func(_ int, region uint64) { f.dropped = append(f.dropped, region) }
	f.Close = func(int) {
		if f.closing != nil {
			<-f.closing
		}
		f.closed++
	}
	return f
}

func newMember(p *port, holds uint64) *Member {
	return &Member{Conn: p, Given: &grant.Granter{Out: &grant.Sender{}}, Holds: func(region uint64) bool { return region == holds }}
}

// A domain is shared from its first data path to its last.
func TestDomainsAreShared(t *testing.T) {
	f, one, two := newFleet(), newMember(&port{}, 0), newMember(&port{}, 0)
	if a, b := f.Join(nil, one), f.Join(nil, two); a != 1 || b != 1 {
		t.Errorf("joined %d and %d", a, b)
	}
	f.revoke(nil, 5)
	f.Leave(one)
	if f.closed != 0 || len(f.dropped) != 1 || f.dropped[0] != 5 {
		t.Errorf("closed %d times, dropped %v", f.closed, f.dropped)
	}
	f.Leave(two)
	f.Leave(two) // it is no longer a member
	f.revoke(nil, 6)
	if f.closed != 1 || len(f.dropped) != 1 {
		t.Errorf("closed %d times, dropped %v", f.closed, f.dropped)
	}
	if d := f.Join(nil, one); d != 2 {
		t.Errorf("joined %d", d)
	}
}

func TestDomainsThatAreKept(t *testing.T) {
	f, one := newFleet(), newMember(&port{}, 0)
	if f.Keep(nil) != f.Join(nil, one) {
		t.Error("kept another one")
	}
	f.Leave(one)
	if f.revoke(nil, 5); f.closed != 0 || len(f.dropped) != 1 {
		t.Errorf("closed %d times, dropped %v", f.closed, f.dropped)
	}
}

// If a region closes while the last data path leaves, revoke returns only after Close.
func TestRevokeWaitsForLeaving(t *testing.T) {
	f, one := newFleet(), newMember(&port{}, 0)
	f.closing = make(chan struct{})
	f.Join(nil, one)
	left, revoked := make(chan struct{}), make(chan struct{})
	go func() { f.Leave(one); close(left) }()
	for leaving := false; !leaving; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		leaving = len(f.leaving) == 1
		f.mu.Unlock()
	}
	go func() { f.revoke(nil, 5); close(revoked) }()
	select {
	case <-revoked:
		t.Error("revoked before Close has returned")
	case <-time.After(10 * time.Millisecond):
	}
	close(f.closing)
	<-left
	<-revoked
}

func TestHoldersAreDisconnected(t *testing.T) {
	f := newFleet()
	p, q := &port{}, &port{}
	f.Join(nil, newMember(p, 5))
	f.Join(nil, newMember(q, 6))
	if f.disconnectHolders(nil, 5); !errors.Is(p.fail, fabric.ErrTimeout) || q.fail != nil {
		t.Errorf("failed with %v and %v", p.fail, q.fail)
	}
}
