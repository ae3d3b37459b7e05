// SPDX-License-Identifier: MIT

package bootstrap

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestVerdicts(t *testing.T) {
	barrier, gather := what{op: opBarrier}, what{op: opAllGather}
	in := func(seq uint64, w what) position { return position{seq: seq, what: w, in: true} }
	out := func(seq uint64, w what) position { return position{seq: seq, what: w} }
	for name, c := range map[string]struct {
		q    diagnosis
		over bool
		says string
		is   error
	}{
		"some have not come": {
			diagnosis{kind: failLate, seq: 7, what: barrier, text: "within 2s", replies: map[int]position{0: in(7, barrier), 1: out(6, gather), 2: out(6, gather), 3: in(7, barrier)}},
			false, "ranks 1, 2 have not called barrier within 2s: ", context.DeadlineExceeded,
		},
		"one does not answer": {
			diagnosis{kind: failLate, seq: 7, what: barrier, text: "within 2s", replies: map[int]position{0: in(7, barrier), 1: out(6, gather), 3: in(7, barrier)}},
			false, "rank 1 has not called barrier within 2s; rank 2 does not answer", context.DeadlineExceeded,
		},
		"one has left after it": {
			diagnosis{kind: failLate, seq: 7, what: barrier, text: "within 2s", leaves: map[int]uint64{2: 7}, replies: map[int]position{0: in(7, barrier), 1: in(7, barrier), 3: in(7, barrier)}},
			false, "all ranks have called barrier, but its result did not arrive within 2s", context.DeadlineExceeded,
		},
		"it has ended meanwhile": {
			diagnosis{kind: failLate, seq: 7, what: barrier, leaves: map[int]uint64{2: 7}, replies: map[int]position{0: out(7, barrier), 1: in(8, gather), 3: out(7, barrier)}},
			true, "", nil,
		},
		"it has not ended at one": {
			diagnosis{kind: failLate, seq: 7, what: barrier, text: "within 2s", replies: map[int]position{0: out(7, barrier), 1: in(8, gather), 2: out(7, barrier), 3: in(7, barrier)}},
			false, "all ranks have called barrier, but its result did not arrive within 2s", context.DeadlineExceeded,
		},
		"late because of a mismatch": {
			diagnosis{kind: failLate, seq: 7, what: barrier, replies: map[int]position{0: in(7, barrier), 1: in(7, gather), 2: in(7, barrier), 3: out(6, barrier)}},
			false, "call 7: rank 1 in all-gather, ranks 0, 2 in barrier", ErrMismatch,
		},
		"a mismatch": {
			diagnosis{kind: failMismatch, text: "seen", replies: map[int]position{0: out(6, barrier), 1: in(7, gather), 2: in(7, what{op: opBroadcast, root: 2}), 3: in(7, what{op: opBroadcast, root: 3})}},
			false, "call 7: rank 1 in all-gather, rank 2 in broadcast from rank 2, rank 3 in broadcast from rank 3", ErrMismatch,
		},
		"a mismatch of which the replies know nothing": {
			diagnosis{kind: failMismatch, text: "what rank 4 has seen", replies: map[int]position{0: in(7, barrier)}},
			false, "what rank 4 has seen", ErrMismatch,
		},
	} {
		if over := c.q.over(4); over != c.over {
			t.Errorf("%s: over is %v", name, over)
		}
		if c.over {
			continue
		}
		if err := c.q.verdict(4).err(); !strings.Contains(err.Error(), c.says) || !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
