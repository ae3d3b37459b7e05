// SPDX-License-Identifier: MIT

package transfer

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/io/internal/batch"
	"mori/io/internal/errs"
	"mori/io/internal/meter"
)

// with returns a transfer of n ops of 8 bytes.
func with(t *testing.T, n int) *Transfer {
	t.Helper()
	e := batch.Entries{Local: make([]uint64, n), Remote: make([]uint64, n), Sizes: make([]uint64, n)}
	for i := range n {
		e.Local[i], e.Remote[i], e.Sizes[i] = uint64(16*i), uint64(16*i), 8
	}
	b := batch.New()
	total, err := b.Accept(&e, 1<<20, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	b.Build(fabric.OpWrite, &batch.Target{OpMax: 8, SegMax: 1}, total, &e)
	return &Transfer{Status: NewStatus(), pair: &Pair{}, kind: fabric.OpWrite, batch: b, total: total, progress: progress{start: time.Now()}}
}

// newLedger returns the ledger of a path to b over tcp.
func newLedger() *Ledger {
	var s meter.Set
	return &Ledger{Meter: s.Path("b", "tcp")}
}

func TestALedgerFindsTheTransferOfAnOp(t *testing.T) {
	l := newLedger()
	first, second := with(t, 3), with(t, 2)
	if !l.Enter(first) || !l.Enter(second) || l.Len() != 2 {
		t.Fatalf("%d transfers, want 2", l.Len())
	}
	for _, x := range []*Transfer{first, second} {
		for i, op := range x.Ops() {
			if got, index := l.Find(op.Ctx); got != x || index != i {
				t.Errorf("op %d: %p, %d", i, got, index)
			}
		}
	}
	late := first.Ops()[1].Ctx
	if l.Leave(first); l.Len() != 1 {
		t.Errorf("%d transfers, want 1", l.Len())
	}
	third := with(t, 3)
	if l.Enter(third); third.slot&(maxRows-1)<<opBits != first.slot&(maxRows-1)<<opBits {
		t.Error("a row is not used again")
	}
	if got, _ := l.Find(late); got != nil {
		t.Error("a completion that comes too late hits another transfer")
	}
	if got, _ := l.Find(1 << 63); got != nil {
		t.Error("a Ctx that was never given out hits a transfer")
	}
}

func TestALedgerKeepsOrphansUntilItsPathIsClosed(t *testing.T) {
	l := newLedger()
	if l.Err() != nil || !l.Close(errs.ErrUnreachable) || l.Close(errs.ErrClosed) || !errors.Is(l.Err(), errs.ErrUnreachable) {
		t.Errorf("the first reason counts: %v", l.Err())
	}
	early, late := with(t, 1), with(t, 1)
	if !l.Orphan(early) {
		t.Error("an orphan is passed on before the path is closed")
	}
	if got := l.Orphans(); len(got) != 1 || got[0] != early {
		t.Errorf("%d orphans", len(got))
	}
	if l.Orphan(late) {
		t.Error("an orphan is kept after they were passed on")
	}
}

// Ops that succeeded are not sent again on the next path, and are counted on the path that moved
// them.
func TestATransferMovesToAnotherPathWithWhatIsUndone(t *testing.T) {
	var s meter.Set
	shm, tcp := &Ledger{Meter: s.Path("b", "shm")}, &Ledger{Meter: s.Path("b", "tcp")}
	x := with(t, 4)
	shm.Enter(x)
	shm.Meter.Op(false).Enter()
	x.OpDone(0, 8)
	x.OpDone(2, 8)
	if !x.OpFailed(fabric.ErrConnReset) || x.Failure() != nil || !x.Undone() {
		t.Fatalf("a broken connection is the path's fault: %v", x.Failure())
	}
	if x.OpsEnded(4) || !x.OpsEnded(1) {
		t.Fatal("Enter counts one op for its caller")
	}
	x.MoveTo(tcp, &batch.Target{OpMax: 8, SegMax: 1})
	if n := len(x.Ops()); n != 2 || x.Replays() != 1 || x.Undone() {
		t.Errorf("%d ops are left after %d replays", n, x.Replays())
	}
	peers := s.Peers(CodeName)[0].Paths
	if a, b := peers[0].Write, peers[1].Write; a.Bytes != 16 || a.Replays != 1 || a.InFlight != 0 || b.InFlight != 1 {
		t.Errorf("%+v, %+v", a, b)
	}
}

func TestCodesOfCauses(t *testing.T) {
	for _, c := range []struct {
		err  error
		gpus bool
		want Code
		text string
	}{
		{nil, false, Success, "it"}, {nil, true, Success, ""},
		{errs.ErrInvalid, false, ErrInvalidArgs, "it"}, {fabric.ErrRange, true, ErrInvalidArgs, "XGMI: it"},
		{fabric.ErrNoKey, false, ErrNotFound, "it"}, {errs.ErrCanceled, false, ErrBadState, "it"},
		{errs.ErrGPU, false, ErrGPUOp, "it"}, {fabric.ErrFault, false, ErrBadAddress, "it"},
		{fabric.ErrTimeout, false, ErrRDMAOp, "it"}, {fabric.ErrTimeout, true, ErrGPUOp, "XGMI: it"},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("wrapped: %w", err)
		}
		if code, text := Outcome(err, "it", c.gpus); code != c.want || text != c.text {
			t.Errorf("%v, between GPUs %v: %v %q", c.err, c.gpus, code, text)
		}
	}
}

func TestAParkedTransferIsTakenOnce(t *testing.T) {
	var k Parking
	a, b := with(t, 1), with(t, 1)
	if err := k.Add(a, b); err != nil || k.Len() != 2 {
		t.Fatalf("%d parked, %v", k.Len(), err)
	}
	if !k.Take(a) || k.Take(a) || k.Has(a) || !k.Has(b) {
		t.Error("a transfer is taken once")
	}
	if left := k.Still([]*Transfer{a, b}); len(left) != 1 || left[0] != b {
		t.Errorf("%d are parked still", len(left))
	}
	k.Close(errs.ErrClosed)
	k.Close(errs.ErrBadState)
	if err := k.Add(a); !errors.Is(err, errs.ErrClosed) || !k.Has(b) {
		t.Errorf("after Close: %v", err)
	}
}
