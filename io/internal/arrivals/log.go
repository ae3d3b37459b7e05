// SPDX-License-Identifier: MIT

package arrivals

import "sync"

// maxWords limits the memory of a Log to about 4 MiB. With consecutive uids that covers the last 4
// million transfers.
const maxWords = 1 << 16

// A Source is a connection over which transfers arrive. It is comparable.
type Source interface {
	// Drain records the arrivals that wait in the connection.
	Drain()
}

// A Log records which transfers of one incarnation of a remote engine have arrived. Uids are mostly
// consecutive, so they are kept as 64-bit words of a bitmap. Beyond maxWords words, a Log evicts
// the oldest.
type Log struct {
	mu      sync.Mutex
	words   map[uint64]uint64
	age     []uint64 // word numbers in order of first use, a ring once full
	next    int      // index of the oldest in a full ring
	sources map[Source]struct{}
}

// Add records the arrival of a transfer.
func (l *Log) Add(uid uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.words == nil {
		l.words = map[uint64]uint64{}
	}
	w := uid >> 6
	if _, ok := l.words[w]; !ok {
		l.remember(w)
	}
	l.words[w] |= 1 << (uid & 63)
}

// remember makes room for word w. It needs l.mu held.
func (l *Log) remember(w uint64) {
	if len(l.age) < maxWords {
		l.age = append(l.age, w)
		return
	}
	delete(l.words, l.age[l.next])
	l.age[l.next] = w
	l.next = (l.next + 1) % maxWords
}

// booked reports whether the arrival of a transfer was recorded.
func (l *Log) booked(uid uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.words[uid>>6]&(1<<(uid&63)) != 0
}

// Watch adds s to the sources that l drains before it answers queries.
func (l *Log) Watch(s Source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sources == nil {
		l.sources = map[Source]struct{}{}
	}
	l.sources[s] = struct{}{}
}

// Unwatch removes s from the sources.
func (l *Log) Unwatch(s Source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sources, s)
}

func (l *Log) watched() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sources) > 0
}

// drain records what waits in the sources of l.
func (l *Log) drain() {
	l.mu.Lock()
	all := make([]Source, 0, len(l.sources))
	for s := range l.sources {
		all = append(all, s)
	}
	l.mu.Unlock()
	for _, s := range all {
		s.Drain()
	}
}
