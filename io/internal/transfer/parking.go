// SPDX-License-Identifier: MIT

package transfer

import "sync"

// A Parking holds the transfers to one peer that are on no path: they wait for a path or for a GPU.
// The first goroutine that takes out a parked transfer owns it. The zero value is ready.
type Parking struct {
	mu     sync.Mutex
	closed error // the reason; nil while transfers may park
	all    map[*Transfer]struct{}
}

// Add parks transfers, or returns the reason why it is closed.
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

// Close rejects further transfers. Parked transfers stay.
func (k *Parking) Close(reason error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed == nil {
		k.closed = reason
	}
}

// Take removes t and makes the caller its owner. It reports false if another goroutine took it
// first.
func (k *Parking) Take(t *Transfer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.all[t]
	delete(k.all, t)
	return ok
}

// Len returns the number of parked transfers.
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

// Still returns the transfers of a list that are still parked.
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

// Fail ends the parked transfers for which why returns an error.
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
