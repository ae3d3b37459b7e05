// SPDX-License-Identifier: MIT

package meter

import (
	"sync"
	"sync/atomic"
	"time"
)

// codes is the number of failure counters: one each for the codes from firstCode on, and the last
// one for all other codes.
const (
	firstCode = 11
	codes     = 6
)

// An Op counts the reads or the writes on one path to one peer. Each transfer enters once and
// leaves once, by Succeeded, Failed or MovedOn. Safe for concurrent use. Counting a transfer of one
// op costs four atomic additions.
type Op struct {
	entered  atomic.Uint64
	movedOn  atomic.Uint64
	replays  atomic.Uint64 // of transfers that MovedOn counted
	bytes    atomic.Uint64
	canceled atomic.Uint64
	failed   [codes]atomic.Uint64
	took     Histogram // of transfers that succeeded; its count is their number

	mu   sync.Mutex
	rate rate // of bytes
}

// Enter counts a transfer as pending.
func (o *Op) Enter() { o.entered.Add(1) }

// Moved counts transferred bytes.
func (o *Op) Moved(n uint64) { o.bytes.Add(n) }

// Succeeded counts a transfer that succeeded after the given time.
func (o *Op) Succeeded(took time.Duration) { o.took.Add(took) }

// Failed counts a transfer that failed with a code.
func (o *Op) Failed(code uint32, canceled bool) {
	if canceled {
		o.canceled.Add(1)
	}
	o.failed[failure(code)].Add(1)
}

func failure(code uint32) int {
	if code < firstCode || code >= firstCode+codes-1 {
		return codes - 1
	}
	return int(code - firstCode)
}

// MovedOn counts a transfer that continues on another path, where it enters again. It is a replay
// if some of its bytes were lost on this path.
func (o *Op) MovedOn(replay bool) {
	if replay {
		o.replays.Add(1)
	}
	o.movedOn.Add(1)
}

func (o *Op) sample(now int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rate.sample(now, o.bytes.Load())
}

// OpStats is a snapshot of an Op.
type OpStats struct {
	Transfers uint64            `json:"transfers"` // that succeeded
	Bytes     uint64            `json:"bytes"`     // of ops that succeeded
	InFlight  uint64            `json:"in_flight"`
	Failed    uint64            `json:"failed"`
	Failures  map[string]uint64 `json:"failures"` // by code; those without any are left out
	Canceled  uint64            `json:"canceled"` // included in the failures
	Replays   uint64            `json:"replays"`  // transfers that continued on another path when this one broke, each time counted

	BytesPerSecond1  float64 `json:"bytes_per_s_1s"` // over the last second
	BytesPerSecond10 float64 `json:"bytes_per_s_10s"`

	Latency LatencyStats `json:"latency"` // from submission until success was reported
}

// read returns a snapshot of o. name returns the name of a code.
func (o *Op) read(name func(code uint32) string) OpStats {
	s := OpStats{Failures: map[string]uint64{}}
	// Read the ended transfers before the entered ones, so that the number in flight is never
	// negative.
	s.Latency = o.took.Read()
	s.Transfers = s.Latency.Count
	for i := range o.failed {
		if n := o.failed[i].Load(); n > 0 {
			s.Failures[name(uint32(firstCode+i))] = n
			s.Failed += n
		}
	}
	s.Canceled, s.Replays, s.Bytes = o.canceled.Load(), o.replays.Load(), o.bytes.Load()
	left := s.Transfers + s.Failed + o.movedOn.Load()
	s.InFlight = o.entered.Load() - left
	o.mu.Lock()
	defer o.mu.Unlock()
	s.BytesPerSecond1, s.BytesPerSecond10 = o.rate.perSecond(time.Second), o.rate.perSecond(10*time.Second)
	return s
}
