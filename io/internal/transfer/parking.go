// SPDX-License-Identifier: MIT

package transfer

import "sync"

// A Parking holds the transfers to one peer that are on no path: they wait for one, or for a GPU. A
// parked transfer belongs to the first goroutine that takes it out. The zero value is ready.
type Parking struct {
	mu     sync.Mutex
	closed error // why; nil while transfers may park
	all    map[*Transfer]struct{}
}

// Add parks transfers, or returns why none may park any more.
func (k *Parking) Add(all ...*Transfer) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed != nil {
		return k.closed
	}
	if k.all == nil {
		k.all = map[*Transfer]struct{}{}
	}
	for _, t := range all {
		k.all[t] = struct{}{}
	}
	return nil
}

// Close refuses further transfers. Those that are parked stay.
func (k *Parking) Close(reason error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed == nil {
		k.closed = reason
	}
}

// Take makes t the caller's. It reports false if somebody else took it before.
func (k *Parking) Take(t *Transfer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.all[t]
	delete(k.all, t)
	return ok
}

// Len is how many transfers are parked.
func (k *Parking) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.all)
}

// Has reports whether t is parked.
func (k *Parking) Has(t *Transfer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.all[t]
	return ok
}

// Still drops the transfers of a list that are not parked any more.
func (k *Parking) Still(all []*Transfer) []*Transfer {
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

// Fail ends the parked transfers for which why has a reason.
func (k *Parking) Fail(why func(*Transfer) error) {
	k.mu.Lock()
	var over []*Transfer
	for t := range k.all {
		if err := why(t); err != nil {
			t.Fail(err)
			over = append(over, t)
			delete(k.all, t)
		}
	}
	k.mu.Unlock()
	for _, t := range over {
		t.End()
	}
}
