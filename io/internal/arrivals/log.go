// SPDX-License-Identifier: MIT

package arrivals

import "sync"

// maxWords bounds the memory of a Log to about 4 MiB. With consecutive uids that is the last 4
// million transfers.
const maxWords = 1 << 16

// A Source is a connection over which transfers arrive. It is comparable.
type Source interface {
	// Drain books the arrivals that wait in the connection.
	Drain()
}

// A Log remembers which transfers of one incarnation of a remote engine have arrived. Uids are
// mostly consecutive, so they are kept as 64-bit words of a bitmap. A Log with more than maxWords
// words forgets the oldest.
type Log struct {
	mu      sync.Mutex
	words   map[uint64]uint64
	age     []uint64 // word numbers in order of first use, a ring once full
	next    int      // where the oldest is in a full ring
	sources map[Source]struct{}
}

// Add books the arrival of a transfer.
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

// booked reports whether the arrival of a transfer was booked.
func (l *Log) booked(uid uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.words[uid>>6]&(1<<(uid&63)) != 0
}

// Watch has questions about l drain s first, until Unwatch.
func (l *Log) Watch(s Source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sources == nil {
		l.sources = map[Source]struct{}{}
	}
	l.sources[s] = struct{}{}
}

// Unwatch ends Watch.
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

// drain books what waits in the sources of l.
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
