// SPDX-License-Identifier: MIT

package io

import "sync"

// A parking holds the transfers to one peer that are on no path: they wait for one, or for a GPU. A
// transfer that is parked belongs to whoever takes it out first. The zero value is ready.
type parking struct {
	mu     sync.Mutex
	closed error // why; nil while transfers may park
	all    map[*transfer]struct{}
}

// add parks transfers, or returns why none may park any more.
func (k *parking) add(all ...*transfer) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed != nil {
		return k.closed
	}
	if k.all == nil {
		k.all = map[*transfer]struct{}{}
	}
	for _, t := range all {
		k.all[t] = struct{}{}
	}
	return nil
}

// close refuses further transfers. Those that are parked stay.
func (k *parking) close(reason error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed == nil {
		k.closed = reason
	}
}

// take makes t the caller's. It reports false if somebody else took it before.
func (k *parking) take(t *transfer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.all[t]
	delete(k.all, t)
	return ok
}

func (k *parking) has(t *transfer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.all[t]
	return ok
}

// still drops the transfers of a list that are not parked any more.
func (k *parking) still(all []*transfer) []*transfer {
	k.mu.Lock()
	defer k.mu.Unlock()
	rest := all[:0]
	for _, t := range all {
		if _, ok := k.all[t]; ok {
			rest = append(rest, t)
		}
	}
	return rest
}

// fail ends the parked transfers for which why has a reason.
func (k *parking) fail(why func(*transfer) error) {
	k.mu.Lock()
	var over []*transfer
	for t := range k.all {
		if err := why(t); err != nil {
			t.fail(err)
			over = append(over, t)
			delete(k.all, t)
		}
	}
	k.mu.Unlock()
	for _, t := range over {
		t.end()
	}
}
