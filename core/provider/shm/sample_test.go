// SPDX-License-Identifier: MIT

package shm

import (
	"errors"
	"testing"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/conn"
)

// TestASampleFindsWhatTheCopyDidWrong replaces the system call by one that copies a byte wrongly.
func TestASampleFindsWhatTheCopyDidWrong(t *testing.T) {
	for _, c := range []struct {
		name  string
		n     int
		every uint64
		ops   int
		found int
	}{
		{"nothing is looked at", 1000, 0, 4, 0},
		{"all are", 1000, 1, 4, 4},
		{"every other one is", 1000, 2, 4, 2},
		{"large ones are", 3 << 20, 1, 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newPair(t, wayCMA)
			region, _ := grantRegion(t, b, 1, c.n, allRights)
			local, _ := memory(t, c.n)
			for i := range local {
				local[i] = byte(i)
			}
			a.path.copies.sample.every = c.every
			a.path.copies.vm.write = func(pid int, from, to []sys.Iovec) (int, error) {
				first := to[0].Addr
				n, err := vm.Write(pid, from, to)
				sys.Bytes(first, 1)[0] ^= 0x55
				return n, err
			}
			found := 0
			for k := range c.ops {
				a.path.RMA(conn.Ticket(k), rmaOp(fabric.OpWrite, local, 0), regionKey(1))
				if err := a.wait(t, conn.Ticket(k)); errors.Is(err, fabric.ErrCRC) {
					found++
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if found != c.found || region[0] == local[0] {
				t.Errorf("%d of %d were found, want %d", found, c.ops, c.found)
			}
		})
	}
}
