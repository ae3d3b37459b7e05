// SPDX-License-Identifier: MIT

package meter

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Record describes one transfer. Durations count from its submission.
type Record struct {
	Start   time.Time
	FirstOp time.Duration // until the first op succeeded; 0: none did
	LastOp  time.Duration // until the last op succeeded
	Took    time.Duration // until its end was reported
	Bytes   uint64        // transferred
	Total   uint64        // requested
	UID     uint64
	Path    *Path // the last one
	Tag     string
	Ops     uint32
	Replays uint32
	Code    uint32
	Read    bool
	Open    bool // not ended yet; Took is the time so far
}

// How many records are kept. Memory is allocated in chunks, since most engines of a test or a
// control process move little.
const (
	Kept   = 4096
	chunk  = 256
	chunks = Kept / chunk
)

// A Ring keeps the last records. The zero value is empty and ready. Safe for concurrent use.
type Ring struct {
	next  atomic.Uint64
	chunk [chunks]atomic.Pointer[[chunk]slot]
}

type slot struct {
	mu  sync.Mutex
	seq uint64 // 1 for the first record ever
	rec Record
}

// Add stores rec in place of the oldest record.
func (r *Ring) Add(rec *Record) {
	seq := r.next.Add(1)
	i := (seq - 1) % Kept
	c := &r.chunk[i/chunk]
	p := c.Load()
	if p == nil {
		c.CompareAndSwap(nil, new([chunk]slot))
		p = c.Load()
	}
	s := &p[i%chunk]
	s.mu.Lock()
	if s.seq < seq { // not overtaken by a whole round of other calls
		s.seq, s.rec = seq, *rec
	}
	s.mu.Unlock()
}

// Records returns the kept records, in order of submission.
func (r *Ring) Records() []Record {
	var out []Record
	for i := range r.chunk {
		p := r.chunk[i].Load()
		if p == nil {
			continue
		}
		for k := range p {
			s := &p[k]
			s.mu.Lock()
			if s.seq > 0 {
				out = append(out, s.rec)
			}
			s.mu.Unlock()
		}
	}
	slices.SortStableFunc(out, func(a, b Record) int { return a.Start.Compare(b.Start) })
	return out
}

// Slowest returns the n records that took longest, the longest first.
func Slowest(all []Record, n int) []Record {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Record) int { return cmp.Compare(b.Took, a.Took) })
	return all[:min(n, len(all))]
}
