// SPDX-License-Identifier: MIT

package transfer

import "sync"

// An op's Ctx: its transfer's row, the row's generation, and its index in the batch.
const (
	opBits  = 28
	rowBits = 20
	maxOps  = 1 << opBits  // of a transfer
	maxRows = 1 << rowBits // transfers in flight on one path
)

// Rows map Op.Ctx to the transfers of one path. A row's generation changes with each use, so
// that a completion that comes too late hits nothing.
type rows struct {
	mu   sync.Mutex
	all  []row
	free []uint32
	live int
}

type row struct {
	t   *Transfer
	gen uint16
}

// add gives t a row, or answers false if all are taken.
func (r *rows) add(t *Transfer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var i uint32
	switch n := len(r.free); {
	case n > 0:
		i, r.free = r.free[n-1], r.free[:n-1]
	case len(r.all) == maxRows:
		return false
	default:
		i = uint32(len(r.all))
		r.all = append(r.all, row{})
	}
	used := &r.all[i]
	used.gen++
	used.t = t
	r.live++
	t.slot = uint64(used.gen)<<(rowBits+opBits) | uint64(i)<<opBits
	return true
}

// get returns the transfer of an op and the op's index, nil if it is over.
func (r *rows) get(ctx uint64) (t *Transfer, op int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := ctx >> opBits & (maxRows - 1)
	if i >= uint64(len(r.all)) || r.all[i].gen != uint16(ctx>>(rowBits+opBits)) {
		return nil, 0
	}
	return r.all[i].t, int(ctx & (maxOps - 1))
}

func (r *rows) remove(slot uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := uint32(slot >> opBits & (maxRows - 1))
	r.all[i].t = nil
	r.all[i].gen++
	r.free = append(r.free, i)
	r.live--
}

// len is how many transfers are in it.
func (r *rows) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live
}
