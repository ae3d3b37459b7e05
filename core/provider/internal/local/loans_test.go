// SPDX-License-Identifier: MIT

package local

import (
	"errors"
	"testing"
	"time"

	"mori/core/fabric"
)

// A debtor is a connection whose end ends its loans.
type debtor struct {
	loans  *Loans
	failed error
}

func (d *debtor) Fail(err error)    { d.failed = err; d.loans.Stop() }
func (d *debtor) Peer() fabric.Addr { return "@debtor" }

func TestLoans(t *testing.T) {
	var s Loans
	one, two, other := s.Lend(1, 7), s.Lend(2, 7), s.Lend(3, 8)
	one.Writable, other.Writable = true, true
	if s.Free(1) || !s.Free(4) {
		t.Error("a ticket is used twice, or a new one is not free")
	}
	if err := s.Return(1); !errors.Is(err, fabric.ErrProtocol) {
		t.Errorf("returned without being asked for: %v", err)
	}
	told := map[uint64]int{}
	for range 2 { // who asks again waits for the same
		if called := s.Revoke(7, func(l *Loan) { told[l.Ticket]++ }); len(called) != 2 {
			t.Errorf("%d loans of the region", len(called))
		}
	}
	if told[1] != 1 || told[2] != 1 || told[3] != 0 {
		t.Errorf("told %v", told)
	}
	ok(t, s.Return(1))
	if err := s.Return(1); !errors.Is(err, fabric.ErrProtocol) {
		t.Errorf("returned twice: %v", err)
	}
	if !s.MayWrite(1) || s.MayWrite(2) || s.MayWrite(4) {
		t.Error("MayWrite has forgotten a loan that was returned, or knows one that never was")
	}
	d := &debtor{loans: &s}
	AwaitReturns([]Recall{{d, []*Loan{one}}}, time.Minute)
	if d.failed != nil {
		t.Errorf("who has returned is disconnected: %v", d.failed)
	}
	AwaitReturns([]Recall{{d, []*Loan{one, two}}}, time.Millisecond)
	if !errors.Is(d.failed, fabric.ErrTimeout) {
		t.Errorf("who returns nothing: %v", d.failed)
	}
	<-other.returned
	if !s.MayWrite(1) || s.MayWrite(2) || !s.MayWrite(3) || s.MayWrite(4) || s.MayWrite(0) {
		t.Error("MayWrite has forgotten a loan, or knows one that never was or may only read")
	}
	if !s.Stopped() || s.Return(9) != nil {
		t.Error("a stopped connection complains of what comes late")
	}
}

func TestLoansForgetTheOldest(t *testing.T) {
	var s Loans
	const n = maxEnded + 100
	for i := range uint64(n) {
		s.Lend(i+1, 7).Writable = true
		s.Revoke(7, func(*Loan) {})
		ok(t, s.Return(i+1))
	}
	if s.MayWrite(100) || !s.MayWrite(101) || !s.MayWrite(n) || len(s.ended) != maxEnded || len(s.order) != maxEnded {
		t.Errorf("%d loans are remembered, want the last %d", len(s.ended), maxEnded)
	}
}
