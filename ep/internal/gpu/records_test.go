// SPDX-License-Identifier: MIT

package gpu

import (
	"testing"
	"time"

	"mori/ep/internal/plan"
)

// The parts of the memory for records are aligned and in the order that hosts.act needs.
func TestRecordsDoNotOverlap(t *testing.T) {
	c := plan.DefaultConfig()
	c.WorldSize, c.HiddenDim, c.MaxTokenTypeSize, c.MaxNumInpToken, c.ExpertsPerRank, c.TopK = 8, 100, 2, 9, 2, 3
	l, err := plan.NewLayout(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []*hosts{
		{perHost: 1}, {perHost: 4}, {perHost: 1, hierarchical: true}, {perHost: 2, hierarchical: true},
	} {
		for _, chunk := range []int{1, 300, chunkBytes} {
			r := records{base: 1 << 20}
			r.layOut(h, &c, &l, chunk)
			parts := []uint64{r.chunkFlags, r.rowFlags, r.requests, r.outgoing, r.incoming}
			if h.sums() {
				parts = append(parts, r.sums)
			}
			parts = append(parts, r.rows, r.size)
			for i, at := range parts {
				if at%plan.Alignment != 0 || i > 0 && at <= parts[i-1] {
					t.Errorf("%+v, chunks of %d bytes: part %d of %d", h, chunk, i, parts)
				}
			}
			if r.incoming-r.outgoing != uint64(h.peers(&c))*r.peerBytes {
				t.Errorf("%+v: %d bytes for %d peers of %d bytes", h, r.incoming-r.outgoing, h.peers(&c), r.peerBytes)
			}
			h.records = r
			for at, want := range map[uint64]string{
				r.base - 1: "", r.base: "records of dispatch", r.base + r.rowFlags: "rows of combine",
				r.base + r.requests: "routing of combine", r.base + r.outgoing: "",
			} {
				if got := h.act(at); got != want {
					t.Errorf("a wait for the word at %#x is for %q, want %q", at-r.base, got, want)
				}
			}
		}
	}
}

func TestOptionsBoundWaitsAndBlocks(t *testing.T) {
	timed, unbounded := Options{Timeout: time.Second}, Options{}
	if timed.waitLimit() != uint64(time.Second) || timed.patience() <= time.Second {
		t.Errorf("a kernel waits %d ns, the host %v", timed.waitLimit(), timed.patience())
	}
	if unbounded.waitLimit() < uint64(24*time.Hour) || unbounded.patience() > time.Hour {
		t.Errorf("a kernel waits %d ns, the host %v", unbounded.waitLimit(), unbounded.patience())
	}
	for _, c := range []struct {
		blocks, units int
		h             *hosts
		want          int
	}{
		{0, 132, nil, 66}, {0, 1, nil, 1}, {8, 132, nil, 8}, {999, 132, nil, 132},
		{0, 132, &hosts{}, hostsBlocks}, {8, 132, &hosts{}, 8},
	} {
		o := Options{Blocks: c.blocks}
		if got := o.mostBlocks(c.units, c.h); got != c.want {
			t.Errorf("%d blocks of %d units, hosts %v: %d, want %d", c.blocks, c.units, c.h != nil, got, c.want)
		}
	}
}
