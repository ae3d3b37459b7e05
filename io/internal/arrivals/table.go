// SPDX-License-Identifier: MIT

package arrivals

import (
	"sync"

	"mori/io/internal/identity"
)

// maxLogs limits how many incarnations a Table remembers.
const maxLogs = 1 << 14

// A Table has the arrivals of all remote engines.
type Table struct {
	registered func(identity.ID) bool

	mu  sync.Mutex
	all map[identity.ID]*Log
}

// NewTable returns an empty table. It never evicts the Log of an engine that is registered.
func NewTable(registered func(identity.ID) bool) *Table {
	return &Table{registered: registered, all: map[identity.ID]*Log{}}
}

// Of returns the Log of who, empty if who is unknown. If the table is full, Of evicts the Log of an
// engine that has no connection and is not registered here.
func (t *Table) Of(who identity.ID) *Log {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.all[who]; ok {
		return l
	}
	if len(t.all) >= maxLogs {
		for other, l := range t.all {
			if !l.watched() && !t.registered(other) {
				delete(t.all, other)
				break
			}
		}
	}
	l := &Log{}
	t.all[who] = l
	return l
}

// Forget drops the arrivals of every engine for which gone is true.
func (t *Table) Forget(gone func(identity.ID) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for who := range t.all {
		if gone(who) {
			delete(t.all, who)
		}
	}
}

// Has reports whether a transfer has arrived. If the arrival is not recorded yet, Has drains the
// connections of who.
func (t *Table) Has(who identity.ID, uid uint64) bool {
	t.mu.Lock()
	l := t.all[who]
	t.mu.Unlock()
	if l == nil {
		return false
	}
	if l.booked(uid) {
		return true
	}
	l.drain()
	return l.booked(uid)
}

// Drain records all arrivals, so that no queue of a connection stays full.
func (t *Table) Drain() {
	t.mu.Lock()
	all := make([]*Log, 0, len(t.all))
	for _, l := range t.all {
		all = append(all, l)
	}
	t.mu.Unlock()
	for _, l := range all {
		l.drain()
	}
}
