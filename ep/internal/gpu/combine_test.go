// SPDX-License-Identifier: MIT

package gpu

import (
	"testing"

	"mori/ep/internal/call"
	"mori/ep/internal/plan"
)

func TestWhatHostsSum(t *testing.T) {
	plain := call.RowFormat{Type: plan.BFloat16}
	pairs := &hosts{hierarchical: true, perHost: 2}
	recorded := lastDispatch{recorded: true}
	bf16 := call.Output{Type: plan.BFloat16}
	for _, c := range []struct {
		what   string
		hosts  *hosts
		last   lastDispatch
		out    call.Output
		format call.RowFormat
		wants  bool
	}{
		{"rows of the last dispatch", pairs, recorded, bf16, plain, true},
		{"float32", pairs, recorded, call.Output{Type: plan.Float32}, call.RowFormat{Type: plan.Float32}, true},
		{"float8", pairs, recorded, call.Output{Type: plan.Float8E4M3FN}, call.RowFormat{Type: plan.Float8E4M3FN}, false},
		{"quantised rows", pairs, recorded, bf16, call.RowFormat{Type: plan.Float8E4M3FN}, false},
		{"a route", pairs, recorded, call.Output{Type: plan.BFloat16, Route: &call.Route{}}, plain, false},
		{"after a dispatch by a route", pairs, lastDispatch{}, bf16, plain, false},
		{"one rank a host", &hosts{hierarchical: true, perHost: 1}, recorded, bf16, plain, false},
		{"no forwarders", &hosts{perHost: 2}, recorded, bf16, plain, false},
		{"one host", nil, recorded, bf16, plain, false},
	} {
		op := calls{hosts: c.hosts, last: c.last}
		if got := op.hierarchical(c.out, c.format); got != c.wants {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
