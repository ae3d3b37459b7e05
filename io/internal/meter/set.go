// SPDX-License-Identifier: MIT

package meter

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// maxPaths limits the number of paths that are counted separately. Beyond it, the oldest path
// without a pending transfer is removed; its counts stay in the totals.
const maxPaths = 4096

// A Path has the counters of one path to one peer. It outlives the connection: the next connection
// with the same name continues its counts.
type Path struct {
	Peer, Name string

	op [2]Op
}

// Op returns the counters of the reads or of the writes.
func (p *Path) Op(read bool) *Op {
	if read {
		return &p.op[0]
	}
	return &p.op[1]
}

// Totals are the sums over all paths since the engine was made.
type Totals struct {
	Reads      uint64 `json:"reads"` // that succeeded
	Writes     uint64 `json:"writes"`
	ReadBytes  uint64 `json:"read_bytes"` // of ops that succeeded
	WriteBytes uint64 `json:"write_bytes"`
	Failed     uint64 `json:"failed"`
	Canceled   uint64 `json:"canceled"` // included in the failures
	Refused    uint64 `json:"refused"`  // never started: bad arguments, no path
	Replays    uint64 `json:"replays"`  // transfers that continued on another path when theirs broke, each time counted
	Altered    uint64 `json:"altered"`  // ops that were sent again because their checksum differed
	Packed     uint64 `json:"packed"`   // payloads that were sent compressed: of own writes, and of answers to peers' reads
}

func (t *Totals) add(read, write *OpStats) {
	t.Reads += read.Transfers
	t.Writes += write.Transfers
	t.ReadBytes += read.Bytes
	t.WriteBytes += write.Bytes
	t.Failed += read.Failed + write.Failed
	t.Canceled += read.Canceled + write.Canceled
	t.Replays += read.Replays + write.Replays
}

// PathStats is a snapshot of a Path.
type PathStats struct {
	Path    string   `json:"path"`
	Backend string   `json:"backend"` // backend of the open connection
	Open    bool     `json:"open"`
	Reasons []string `json:"reasons"` // why no better path is used
	Read    OpStats  `json:"read"`
	Write   OpStats  `json:"write"`
}

// PeerStats are the paths of one peer, by name.
type PeerStats struct {
	Key   string      `json:"key"`
	Known bool        `json:"known"` // it is registered now
	Paths []PathStats `json:"paths"`
}

// A Set holds the paths of one engine. The zero value is empty and ready; safe for concurrent use.
type Set struct {
	mu    sync.Mutex
	paths map[[2]string]*Path
	age   []*Path // oldest first
	gone  Totals  // of the paths that made room
}

// Path returns the counters of a path, and creates them at first use.
func (s *Set) Path(peer, name string) *Path {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := [2]string{peer, name}
	if p := s.paths[key]; p != nil {
		return p
	}
	if s.paths == nil {
		s.paths = map[[2]string]*Path{}
	}
	if len(s.age) >= maxPaths {
		s.makeRoom()
	}
	p := &Path{Peer: peer, Name: name}
	s.paths[key] = p
	s.age = append(s.age, p)
	return p
}

// makeRoom needs s.mu held.
func (s *Set) makeRoom() {
	for i, p := range s.age {
		read, write := p.op[0].read(number), p.op[1].read(number)
		if read.InFlight+write.InFlight == 0 {
			s.gone.add(&read, &write)
			s.age = slices.Delete(s.age, i, i+1)
			delete(s.paths, [2]string{p.Peer, p.Name})
			return
		}
	}
}

func number(uint32) string { return "" }

// Sample records the current throughput; now is any monotonic time. Calls less than 100 ms apart
// are ignored. The "last second" of OpStats is as precise as the interval between calls.
func (s *Set) Sample(now time.Duration) {
	for _, p := range s.all() {
		for i := range p.op {
			p.op[i].sample(int64(now))
		}
	}
}

func (s *Set) all() []*Path {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.age)
}

// Totals returns the sums over all paths.
func (s *Set) Totals() Totals {
	s.mu.Lock()
	out := s.gone
	all := slices.Clone(s.age)
	s.mu.Unlock()
	for _, p := range all {
		read, write := p.op[0].read(number), p.op[1].read(number)
		out.add(&read, &write)
	}
	return out
}

// Peers returns all counters, by peer and path. name returns the name of a failure code.
func (s *Set) Peers(name func(code uint32) string) []PeerStats {
	all := s.all()
	slices.SortFunc(all, func(a, b *Path) int {
		if c := strings.Compare(a.Peer, b.Peer); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	out := []PeerStats{}
	for _, p := range all {
		if len(out) == 0 || out[len(out)-1].Key != p.Peer {
			out = append(out, PeerStats{Key: p.Peer, Paths: []PathStats{}})
		}
		last := &out[len(out)-1]
		last.Paths = append(last.Paths, PathStats{Path: p.Name, Reasons: []string{}, Read: p.op[0].read(name), Write: p.op[1].read(name)})
	}
	return out
}
