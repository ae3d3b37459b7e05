// SPDX-License-Identifier: MIT

package transfer

import "sync"

// The fields of an op's Ctx: its transfer's row, the row's generation, and the op's index in the
// batch.
const (
	opBits  = 28
	rowBits = 20
	maxOps  = 1 << opBits  // of a transfer
	maxRows = 1 << rowBits // pending transfers on one path
)

// rows maps Op.Ctx to the transfers of one path. A row's generation changes with each use, so a
// late completion matches no transfer.
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

// add assigns t a row. It reports false if all are taken.
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

// get returns the transfer of an op and the op's index, nil if the transfer has left its row.
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

// len returns the number of transfers.
func (r *rows) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live
}
