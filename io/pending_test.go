// SPDX-License-Identifier: MIT

package io

import (
	"strings"
	"testing"
	"time"

	"mori/io/internal/transfer"
)

// A submission beyond the limit waits for room. It fails if there is none within its deadline.
func TestPendingTransfersAreBounded(t *testing.T) {
	a, _, s := pair(t, 64, BackendTCP, nil)
	a.maxPending = 2
	held := s.begin(t, transfer.LoadEntries, 0)
	st := s.WithDeadline(20*time.Millisecond).Write([]uint64{0}, []uint64{0}, []uint64{64}, 1)
	if st.Code() != CodeErrBadState || !strings.Contains(st.Message(), "MORI_IO_MAX_PENDING") {
		t.Errorf("without room: %v, %q", st.Code(), st.Message())
	}
	done := make(chan *Status)
	go func() { done <- s.Write([]uint64{0}, []uint64{0}, []uint64{64}, 2) }()
	select {
	case st := <-done:
		t.Errorf("there is no room, and the submission does not wait: %v, %q", st.Code(), st.Message())
	case <-time.After(30 * time.Millisecond):
	}
	held.End()
	select {
	case st := <-done:
		succeed(t, st)
	case <-time.After(20 * time.Second):
		t.Fatal("there is room, and the submission still waits")
	}
	until(t, "nothing is pending", func() bool { return s.pair.Pending.Order.Load() == 0 })
}

// A caller that submits without waiting has at most as many pending transfers as the limit allows,
// and all of them succeed.
func TestSubmittingWithoutWaitingIsBounded(t *testing.T) {
	a, _, s := pair(t, 64, BackendTCP, nil)
	a.maxPending = 64
	var all []*Status
	var most int64
	for i := range 5000 {
		all = append(all, s.Write([]uint64{0}, []uint64{0}, []uint64{64}, uint64(i)))
		most = max(most, s.pair.Pending.Order.Load())
	}
	for _, st := range all {
		succeed(t, st)
	}
	if most > 64 {
		t.Errorf("%d were pending, want at most 64", most)
	}
}
