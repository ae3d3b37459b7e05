// SPDX-License-Identifier: MIT

package meter

import (
	"sync"
	"sync/atomic"
	"time"
)

// codes are the numbers of failures that are counted apart: from firstCode on; all others share the
// last counter.
const (
	firstCode = 11
	codes     = 6
)

// An Op counts the reads or the writes on one path to one peer. A transfer enters once and leaves
// once, by Succeeded, Failed or MovedOn. Safe for concurrent use. Booking a transfer of one op
// costs four atomic additions.
type Op struct {
	entered  atomic.Uint64
	movedOn  atomic.Uint64
	replays  atomic.Uint64 // of movedOn
	bytes    atomic.Uint64
	canceled atomic.Uint64
	failed   [codes]atomic.Uint64
	took     Histogram // of those that succeeded, whose number this is as well

	mu   sync.Mutex
	rate rate // of bytes
}

// Enter counts a transfer as in flight.
func (o *Op) Enter() { o.entered.Add(1) }

// Moved counts bytes that are done.
func (o *Op) Moved(n uint64) { o.bytes.Add(n) }

// Succeeded ends a transfer well.
func (o *Op) Succeeded(took time.Duration) { o.took.Add(took) }

// Failed ends a transfer with the code of its failure.
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

// MovedOn says that a transfer goes on over another path, on which it enters. It is a replay if
// some of it was lost on this one.
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

// OpStats is an Op that was read.
type OpStats struct {
	Transfers uint64            `json:"transfers"` // that succeeded
	Bytes     uint64            `json:"bytes"`     // of ops that succeeded
	InFlight  uint64            `json:"in_flight"`
	Failed    uint64            `json:"failed"`
	Failures  map[string]uint64 `json:"failures"` // by code; those without any are left out
	Canceled  uint64            `json:"canceled"` // of the failed
	Replays   uint64            `json:"replays"`  // transfers that went on over another path when this one broke, each time counted

	BytesPerSecond1  float64 `json:"bytes_per_s_1s"` // over the last second
	BytesPerSecond10 float64 `json:"bytes_per_s_10s"`

	Latency LatencyStats `json:"latency"` // from submission until its success was reported
}

// read returns what o has counted; name returns the name of a code.
func (o *Op) read(name func(code uint32) string) OpStats {
	s := OpStats{Failures: map[string]uint64{}}
	// What ended is read before what entered, so that nothing is in flight a negative number of
	// times.
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
