// SPDX-License-Identifier: MIT

package io

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestOrderHoldsUnderAnyCompletionOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 200 {
		var o order
		all := make([]*transfer, 1+rng.IntN(20))
		for i := range all {
			all[i] = &transfer{status: NewStatus()}
			all[i].status.SetCode(CodeInProgress)
			o.add(all[i])
		}
		for _, i := range rng.Perm(len(all)) {
			code := CodeSuccess
			if rng.IntN(4) == 0 {
				code = CodeErrRDMAOp
			}
			o.finish(all[i], code, "", time.Time{})
			open := false
			for k, x := range all {
				c := x.status.Code()
				if c == CodeSuccess && open {
					t.Fatalf("transfer %d is SUCCESS while an earlier one is in progress", k)
				}
				open = open || c == CodeInProgress
			}
			if code.Failed() && all[i].status.Code() != code {
				t.Fatal("a failure was held back")
			}
		}
		if o.head != nil || o.tail != nil || o.inflight != 0 {
			t.Fatalf("left over: %+v", &o)
		}
	}
}
