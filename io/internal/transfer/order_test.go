// SPDX-License-Identifier: MIT

package transfer

import (
	"math/rand/v2"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/io/internal/meter"
)

func TestOrderHoldsUnderAnyCompletionOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 200 {
		var o Order
		all := make([]*Transfer, 1+rng.IntN(20))
		for i := range all {
			all[i] = &Transfer{Status: NewStatus()}
			all[i].Status.SetCode(InProgress)
			o.add(all[i])
		}
		for _, i := range rng.Perm(len(all)) {
			code := Success
			if rng.IntN(4) == 0 {
				code = ErrRDMAOp
			}
			o.finish(all[i], code, "", time.Time{})
			open := false
			for k, x := range all {
				c := x.Status.Code()
				if c == Success && open {
					t.Fatalf("transfer %d is SUCCESS while an earlier one is in progress", k)
				}
				open = open || c == InProgress
			}
			if code.Failed() && all[i].Status.Code() != code {
				t.Fatal("a failure was held back")
			}
		}
		if o.head != nil || o.tail != nil || o.inflight != 0 {
			t.Fatalf("left over: %+v", &o)
		}
	}
}

func TestASuccessIsRecordedWhenItIsReported(t *testing.T) {
	var r meter.Recorder
	o := Order{recorder: &r}
	l := &Ledger{Meter: r.Path("b", "tcp")}
	var all [3]*Transfer
	for i := range all {
		all[i] = &Transfer{Status: NewStatus(), kind: fabric.OpWrite, uid: uint64(i), progress: progress{start: time.Unix(int64(i), 0)}}
		all[i].on.Store(l)
		o.add(all[i])
	}
	o.finish(all[1], Success, "", time.Unix(11, 0))
	if n := len(r.Recent.Records()); n != 0 {
		t.Errorf("%d are booked before an earlier one has ended", n)
	}
	o.finish(all[2], ErrRDMAOp, "", time.Unix(12, 0))
	if got := r.Recent.Records(); len(got) != 1 || got[0].UID != 2 || got[0].Took != 10*time.Second {
		t.Errorf("a failure is reported at once: %+v", got)
	}
	o.finish(all[0], Success, "", time.Unix(13, 0))
	if got := r.Recent.Records(); len(got) != 3 || got[0].Took != 13*time.Second || got[1].Took != 12*time.Second {
		t.Errorf("both successes are reported when the first transfer has ended: %+v", got)
	}
	if n := r.Totals(); n.Writes != 2 || n.Failed != 1 {
		t.Errorf("%+v", n)
	}
}
