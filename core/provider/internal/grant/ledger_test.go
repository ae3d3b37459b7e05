// SPDX-License-Identifier: MIT

package grant

import (
	"errors"
	"testing"
	"time"

	"mori/core/fabric"
)

// A connection ends its grants when it fails.
type connection struct {
	issued *Ledger
	failed error
}

func (d *connection) Fail(err error)    { d.failed = err; d.issued.Stop() }
func (d *connection) Peer() fabric.Addr { return "@connection" }

func TestLedger(t *testing.T) {
	var s Ledger
	one, two, other := s.Issue(1, 7), s.Issue(2, 7), s.Issue(3, 8)
	one.Writable, other.Writable = true, true
	if s.Free(1) || !s.Free(4) {
		t.Error("a ticket is used twice, or a new one is not free")
	}
	if err := s.Return(1); !errors.Is(err, fabric.ErrProtocol) {
		t.Errorf("returned without being revoked: %v", err)
	}
	notified := map[uint64]int{}
	for range 2 { // a second revocation waits for the same grants
		if revoked := s.Revoke(7, func(l *Issued) { notified[l.Ticket]++ }); len(revoked) != 2 {
			t.Errorf("%d grants of the region", len(revoked))
		}
	}
	if notified[1] != 1 || notified[2] != 1 || notified[3] != 0 {
		t.Errorf("notified %v", notified)
	}
	ok(t, s.Return(1))
	if err := s.Return(1); !errors.Is(err, fabric.ErrProtocol) {
		t.Errorf("returned twice: %v", err)
	}
	if !s.MayWrite(1) || s.MayWrite(2) || s.MayWrite(4) {
		t.Error("MayWrite has forgotten a grant that was returned, or knows one that never was")
	}
	d := &connection{issued: &s}
	AwaitReturns([]Revocation{{d, []*Issued{one}}}, time.Minute)
	if d.failed != nil {
		t.Errorf("a peer that returned is disconnected: %v", d.failed)
	}
	AwaitReturns([]Revocation{{d, []*Issued{one, two}}}, time.Millisecond)
	if !errors.Is(d.failed, fabric.ErrTimeout) {
		t.Errorf("a peer that returns nothing: %v", d.failed)
	}
	<-other.returned
	if !s.MayWrite(1) || s.MayWrite(2) || !s.MayWrite(3) || s.MayWrite(4) || s.MayWrite(0) {
		t.Error("MayWrite has forgotten a grant, or knows one that never was or may only read")
	}
	if !s.Stopped() || s.Return(9) != nil {
		t.Error("a stopped connection complains of a late return")
	}
}

func TestLedgerForgetsTheOldest(t *testing.T) {
	var s Ledger
	const n = maxEnded + 100
	for i := range uint64(n) {
		s.Issue(i+1, 7).Writable = true
		s.Revoke(7, func(*Issued) {})
		ok(t, s.Return(i+1))
	}
	if s.MayWrite(100) || !s.MayWrite(101) || !s.MayWrite(n) || len(s.ended) != maxEnded || len(s.order) != maxEnded {
		t.Errorf("%d grants are remembered, want the last %d", len(s.ended), maxEnded)
	}
}
